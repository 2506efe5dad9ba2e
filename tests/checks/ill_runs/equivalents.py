"""Runs with operators in whose place others would do."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import Equivalent, Evidence, Site

FIRST_LINE = Site("model.py", 42, "forward")
LAST_LINE = Site("model.py", 43, "forward")


def otherwise(kind: str = "order", **changes: Any) -> Evidence:
    """10 of the 25 ms, which others would do in 1."""
    one = Equivalent(
        kind=kind,
        at=FIRST_LINE,
        then_at=LAST_LINE,
        times_per_step=2.0,
        shape=(16, 512, 512),
        forward_ms=4.0,
        backward_ms=6.0,
        other_forward_ms=0.4,
        other_backward_ms=0.6,
    )
    return with_(healthy(), equivalents=(with_(one, **changes),))
