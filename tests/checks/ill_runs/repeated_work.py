"""Runs that compute what is there already."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import Evidence, RepeatedWork, SameResult, Site

FIRST_LINE = Site("train.py", 30, "step")
AGAIN_LINE = Site("train.py", 33, "step")


def repeated(*others: RepeatedWork, **changes: Any) -> Evidence:
    """A second forward pass on the same batch: 4 of the 25 ms, and 2 of the backward pass."""
    one = RepeatedWork(
        at=AGAIN_LINE,
        is_unchanged=False,
        ops_per_step=12.0,
        forward_ms=4.0,
        backward_ms=2.0,
        operators=("addmm", "relu"),
        first_at=FIRST_LINE,
    )
    return with_(healthy(), repeated_work=(with_(one, **changes), *others))


POSITIONS_LINE = Site("train.py", 36, "step")
POSITIONS = SameResult(
    function="positions",
    at=POSITIONS_LINE,
    defined_at=Site("model.py", 4, "positions"),
    part="forward",
    calls_per_step=1.0,
    arguments=1,
    ms_per_step=3.0,
    within=(Site("model.py", 20, "angle"),),
)
"""Positional encodings by NumPy, in every step."""


def computed_again(*others: SameResult, **changes: Any) -> Evidence:
    """3 of the 25 ms."""
    return with_(healthy(), same_results=(with_(POSITIONS, **changes), *others))


def unchanged(**changes: Any) -> Evidence:
    """An adjacency matrix that is normalised in every step."""
    return repeated(is_unchanged=True, first_at=None, backward_ms=0.0, **changes)
