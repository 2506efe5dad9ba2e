"""Runs that save too often."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import Checkpoints, Evidence, Parts, Saved, Site

SAVE_LINE = Site("train.py", 80, "main")
HELD = Saved(SAVE_LINE, 6_000_000, 4_000_000, 6_100_000)


def checkpoints(save_ms: float = 50.0, every: float = 10.0, **changes: Any) -> Evidence:
    """Beside a steady step of 25 ms, every tenth step one of 50 ms in `torch.save`, and 5 that lead to it."""
    made = Checkpoints(20, 200, every, save_ms, save_ms + 5.0, False, SAVE_LINE, 6_100_000, 1.0, HELD)
    saves = with_(made, **changes)
    irregular = 1.2 * saves.most_ms_per_step
    return with_(healthy(), checkpoints=saves, step__irregular=20, step__irregular_ms=irregular)


def in_every_step() -> Evidence:
    """So often that the steady step has them as a part."""
    parts = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=2.0, checkpoint=20.0, other=0.2)
    return with_(checkpoints(20.0, 1.0, is_steady=True), step=step(parts))


def scratch_files(calls: float = 9.0) -> Evidence:
    """Activations that a step writes to so many files, and reads again."""
    evidence = in_every_step()
    return with_(evidence, checkpoints__calls_per_save=calls)
