"""Runs that use torch.compile."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import (
    Compilation,
    CompiledAgain,
    Evidence,
    GraphBreak,
    JobAnatomy,
    JobParts,
    Line,
    Missing,
    Recompiled,
    Site,
)

FORWARD = Site("model.py", 30, "forward")
SIZES = Recompiled(FORWARD, 10, 2000.0, ("tensor 'tokens' size mismatch at index 1. expected 40, actual 56",))
BREAKS = (
    GraphBreak(Site("model.py", 33, "forward"), "Failed to trace builtin operator"),
    GraphBreak(Site("model.py", 36, "forward"), ""),
)
QUIET = Compilation(
    count=4,
    seconds=3.0,
    late_steps=100,
    late_wall_ms=2500.0,
    late_ms=0.0,
    recompiled=(),
    again=CompiledAgain(count=0, steps=200, ms=0.0, beyond_ms=0.0, whole_count=0, whole_ms=0.0),
    eager_ms=Missing("fewer than five such steps were seen"),
    compiled_ms=24.0,
    irregular=False,
    breaks=(),
    given_up=(),
    called_at=Site("train.py", 12, "main"),
)


def compiled(**changes: Any) -> Evidence:
    """A healthy job that compiles."""
    return with_(healthy(), job__compiled=True, compilation=with_(QUIET, **changes))


def never_ran(calls: float = 5000.0) -> Evidence:
    """A job that compiles its model and calls the model, whose passes call so many operators."""
    return uncompiled(calls, compilation=with_(QUIET, count=0, seconds=0.0, never_ran=True))


def uncompiled(calls: float = 5000.0, **changes: Any) -> Evidence:
    """A healthy job whose model's passes call so many operators, of at least 2 us; its passes take 20 of 25 ms."""
    forward, backward = (
        Line(Site("model.py", 30, "forward"), part, calls / 2, 10.0, 9.0, 1.0, 1.0, 1.0)
        for part in ("forward", "backward")
    )
    return with_(healthy(), **{"job__compile_lacks": "", "hot_lines": (forward, backward), **changes})


def to_its_end(steps: int, seconds: float, **changes: Any) -> Evidence:
    """A job of so many compiled steps of 24 ms, observed from its start to its end, that compiled for so long."""
    anatomy = JobAnatomy(1000 * seconds + 24.0 * steps, True, False, JobParts(first_step=1000 * seconds), steps)
    return with_(compiled(seconds=seconds, **changes), anatomy=anatomy)


def recompiling(**changes: Any) -> Evidence:
    """200 ms for each new length of ten in the later hundred steps, which take 4.5 s; as often in the hundred before,
    and in the warm-up five times."""
    again = CompiledAgain(count=20, steps=200, ms=4000.0, beyond_ms=4400.0, whole_count=25, whole_ms=5000.0)
    return compiled(**{"recompiled": (SIZES,), "again": again, "late_ms": 2000.0, "late_wall_ms": 4500.0, **changes})
