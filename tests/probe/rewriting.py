"""Steps under the window that looks for operators which others could stand for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe import timeline
from perfdoctor.injected._perfdoctor_probe.windows import equivalents
from perfdoctor.injected._perfdoctor_probe.windows.repeats import RepeatsWindow

AS_IT_IS_NS = 10**9
"""More than any step: nothing is quicker the second time."""


def watched(step: Callable[[], torch.Tensor], steps: int = 3) -> list[dict[str, Any]]:
    """What was found in steps that each end in a backward pass.

    Each other way takes 10 us, by the clock, and the job's own as long as in the step: what they would take here
    depends on who else computes.
    """
    clock = SimpleNamespace(step=7, stack=[timeline.OTHER], spent=[0] * timeline.PARTS)
    loop = SimpleNamespace(timeline=clock)
    users = UsersFile(step.__code__.co_filename)
    window = RepeatsWindow(users, loop, compiled=False, evaluation=SimpleNamespace(on_scores=None))
    step().sum().backward()
    window.open()
    try:
        with (
            mock.patch.object(equivalents, "_clock", itertools.count(0, 10_000).__next__),
            mock.patch.object(equivalents, "_as_it_is_ns", lambda other: AS_IT_IS_NS),
        ):
            for _ in range(steps):
                step().sum().backward()
                clock.step += 1
    finally:
        found = window.close(steps)
    return found["equivalents"]
