"""A probe that is broken from inside: training goes on the same, and the recording says so."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(450)]

WAYS = ("queue", "arrived", "timeline", "boundary", "recorder", "control", "window", "sites", "signals")


@pytest.fixture
def seen(observe):
    return observe("broken.py", *WAYS)


def test_training_goes_on_the_same(seen):
    assert "failed" not in seen.bare.stdout
    assert seen.probed.stdout.splitlines() == seen.bare.stdout.splitlines()
    assert seen.bare.stderr == ""
    assert seen.probed.code == seen.bare.code == 0


@pytest.mark.parametrize(
    ("how", "hooks", "steps"),
    [
        ("queue", {"depth"}, 35),
        ("arrived", {"batch"}, 35),
        ("timeline", {"iterator", "forward", "backward"}, 4),
        ("boundary", {"optimizer"}, 4),
        ("control", {"control"}, 35),
        ("window", {"window sites", "window ops"}, 35),
        ("sites", {"loader", "save"}, 35),
    ],
)
def test_a_hook_that_raises_is_switched_off_and_noted(seen, how, hooks, steps):
    process = seen.named(how)
    assert hooks <= {fault.hook for fault in process.faults}
    assert len(process.steps) >= steps
    assert all(fault.error for fault in process.faults)


@pytest.mark.parametrize(("how", "hooks"), [("queue", 1), ("arrived", 1), ("control", 1), ("window", 2)])
def test_the_other_hooks_stay_on(seen, how, hooks):
    assert len(seen.named(how).faults) == hooks


def test_time_after_a_failure_is_not_billed_to_the_part_it_left_open(seen):
    steps = seen.named("arrived").steps
    assert steps["input_wait_us"][8:].sum() == 0
    assert (steps["forward_us"][8:] > 0).all()


LATE = """\
import atexit, gc
def late():
    for found in gc.get_objects():
        if type(found).__name__ == "Probe":
            found.guarded("late", lambda: 1 / 0)()
atexit.register(late)
import torch
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter])
for _ in range(3):
    parameter.sum().backward()
    optimizer.step()
"""


def test_what_a_hook_meets_while_the_interpreter_is_taken_down_is_nobodys_concern(observe, tmp_path):
    (tmp_path / "ends.py").write_text(LATE)
    seen = observe("ends.py", cwd=tmp_path)
    seen.same()
    seen.healthy()


def test_what_a_signal_handler_raises_inside_a_hook_reaches_the_job(seen):
    assert seen.probed.stderr == "alarm reached the job\n"
    process = seen.named("signals")
    assert process.faults == ()
    # The part it left open was dropped at the next optimizer step: what is between the parts is `other` again.
    steps = process.steps
    parts = sum(steps[f"{name}_us"] for name in ("input_wait", "forward", "backward", "optimizer", "gc"))
    assert (steps["wall_us"] - parts)[10:].sum() > steps["wall_us"][10:].sum() / 100
