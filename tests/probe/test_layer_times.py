"""What layers take of a profile, whose ranges lie within each other."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from perfdoctor.injected._perfdoctor_probe.windows.layer_times import RANGE, LayerTimes

STEP = "Optimizer.step#AdamW.step"


@dataclass
class Event:
    text: str
    begins: int
    ends: int

    def name(self) -> str:
        return self.text

    def sequence_nr(self) -> int:
        return -1

    def fwd_thread_id(self) -> int:
        return 1

    def shapes(self) -> list[object]:
        return []

    def concrete_inputs(self) -> list[object]:
        return []


def times(*events: tuple[str, int, int]) -> LayerTimes:
    """Of events of one thread, given with their beginning and end, in nanoseconds."""
    made = [Event(*event) for event in sorted(events, key=lambda one: (one[1], -one[2]))]
    found = LayerTimes(lambda *_: 0)
    found.read([(1, one.begins, one.begins - one.ends, one) for one in made], with_device=False)
    return found


LAYERS = (f"{RANGE}0", 10, 50), ("aten::mm", 12, 48), (f"{RANGE}1", 60, 80)


@pytest.mark.parametrize(
    ("events", "total"),
    [
        (LAYERS, 60),
        ((*LAYERS, (STEP, 90, 130), ("aten::add_", 100, 110)), 100),
        ((*LAYERS, (STEP, 0, 200), ("aten::add_", 150, 160)), 70),
        ((*LAYERS, ("whole", 0, 200), (STEP, 5, 195), ("aten::add_", 150, 160)), 70),
        ((*LAYERS, (STEP, 0, 200), ("autograd::engine::evaluate_function: Mm", 90, 120)), 90),
    ],
    ids=["alone", "an update beside them", "an update around them", "two ranges around", "with a backward pass"],
)
def test_a_range_around_layers_is_no_work_of_its_own(events: tuple[tuple[str, int, int], ...], total: int) -> None:
    found = times(*events)
    assert found.total_ns == total
    assert [found.of(layer)[0][0] for layer in (0, 1)] == [40, 20]
