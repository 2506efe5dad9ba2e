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
    found = device_work.summary([*events, Event(0, 20, "Memcpy HtoD (Pageable -> Device)")], 2)
    assert (found["device_busy_ms"], found["devices"]) == (0.1, [{"index": 0, "busy_ms": 0.1}])
    assert (found["device_copies_ms"], found["pageable_copies_ms"]) == (0.04, 0.01)


def test_devices_that_take_turns_have_a_timeline_each() -> None:
    found = device_work.summary([Event(0, 100), Event(100, 150, device=1), Event(240, 60)], 1)
    assert [(row["index"], row["busy_ms"]) for row in found["devices"]] == [(0, 0.16), (1, 0.15)]
    assert found["device_busy_ms"] == 0.3


def test_a_range_of_the_programs_own_is_no_work() -> None:
    events = [Event(0, 500, "Optimizer.step#Adam.step", annotation=True), Event(10, 20)]
    assert [device_work.is_work(event) for event in events] == [False, True]


def test_kernels_that_turn_tensors_round_are_told_apart() -> None:
    assert device_work.layout_ns([Event(0, 40, "void nchwToNhwcKernel<float>"), Event(50, 10)]) == 40_000
