"""Runs whose backward passes fill gradients that are zeroed before anybody reads them."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import DiscardedGradients, Evidence, Site

GENERATOR_LINE = Site("train.py", 20, "main")
BACKWARD_LINE = Site("train.py", 24, "main")


def discarded(*others: DiscardedGradients, **changes: Any) -> Evidence:
    """A critic's loss goes back through the generator: 4 of the 10 ms that the backward pass takes."""
    one = DiscardedGradients(
        at=BACKWARD_LINE,
        module="Generator",
        parameters=16,
        elements=600_000,
        passes_per_step=1.0,
        whole_ms=4.0,
        part_ms=1.0,
        called_at=GENERATOR_LINE,
    )
    return with_(healthy(), discarded_gradients=(with_(one, **changes), *others))
