"""Runs that compute gradients for parameters that are in no optimizer."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import Evidence, FrozenTiming, Missing, Site, UnusedGradients

BACKBONE_LINE = Site("train.py", 12, "main")
TIMING = FrozenTiming(now_ms=20.0, frozen_ms=12.0)


def without_optimizer(timing: FrozenTiming | Missing = TIMING, **changes: Any) -> Evidence:
    """A head learns, and 60 tensors of the backbone ahead of it get gradients. In the job the passes take 22 ms."""
    unused = UnusedGradients(
        parameters=60,
        of=62,
        elements=11_000_000,
        modules=("backbone",),
        ahead_forward_ms=6.0,
        ahead_backward_ms=10.0,
        behind_backward_ms=0.0,
        made_at=BACKBONE_LINE,
    )
    return with_(healthy(), layers__unused=with_(unused, **changes), ops__frozen=timing)
