"""When devices worked, from events as the profiler gives them: made up, for there is no device here."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perfdoctor.injected._perfdoctor_probe.windows import device_work


@dataclass(frozen=True)
class Event:
    """Microseconds."""

    start: int
    took: int
    what: str = "ampere_sgemm_64x64_nn"
    device: int = 0
    stream: int = 7
    annotation: bool = False

    def name(self) -> str:
        return self.what

    def start_ns(self) -> int:
        return self.start * 1000

    def duration_ns(self) -> int:
        return self.took * 1000

    def device_index(self) -> int:
        return self.device

    def device_resource_id(self) -> int:
        return self.stream

    def is_user_annotation(self) -> bool:
        return self.annotation


@pytest.mark.parametrize(
    ("intervals", "length"),
    [
        ([], 0),
        ([(0, 10), (20, 30)], 20),
        ([(0, 10), (5, 15)], 15),
        ([(0, 10), (10, 15)], 15),
        ([(0, 30), (5, 15), (20, 25)], 30),
        ([(20, 30), (0, 10), (5, 25)], 30),
    ],
)
def test_a_moment_counts_once(intervals: list[tuple[int, int]], length: int) -> None:
    assert device_work.united_ns(intervals) == length


def test_kernels_of_two_streams_overlap() -> None:
    events = [Event(0, 100), Event(50, 100, stream=8), Event(200, 50), Event(120, 60, "Memcpy HtoD (Pinned -> Device)")]
    found = device_work.by_device(events)
    assert found["busy_us"] == 200
    (row,) = found["devices"]
    assert row == {"index": 0, "streams": 2, "kernels_us": 250, "busy_us": 200, "active_us": 230}
    assert device_work.totals(events) == {"kernels": 250, "Memcpy HtoD (Pinned -> Device)": 60}


def test_devices_that_take_turns_have_a_timeline_each() -> None:
    found = device_work.by_device([Event(0, 100), Event(100, 150, device=1), Event(240, 60)])
    assert [(row["index"], row["busy_us"]) for row in found["devices"]] == [(0, 160), (1, 150)]
    assert found["busy_us"] == 300


def test_a_range_of_the_programs_own_is_no_work() -> None:
    events = [Event(0, 500, "Optimizer.step#Adam.step", annotation=True), Event(10, 20)]
    assert [device_work.is_work(event) for event in events] == [False, True]


def test_kernels_that_turn_tensors_round_are_told_apart() -> None:
    assert device_work.totals([Event(0, 40, "void nchwToNhwcKernel<float>"), Event(50, 10)]) == {
        "kernels": 50,
        "layout": 40,
    }
