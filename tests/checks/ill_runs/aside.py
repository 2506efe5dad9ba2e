"""Runs that compute what training does not need."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import AsideWork, Evidence, Site

METRIC_LINE = Site("train.py", 31, "training_step")
DECODER_LINE = Site("model.py", 22, "forward")
METRIC = AsideWork(at=METRIC_LINE, ops_per_step=40.0, forward_ms=5.0, operators=("sort", "cumsum", "cat"))
"""An exact AUROC of the epoch so far: 5 of the 25 ms."""
DECODER = AsideWork(at=DECODER_LINE, ops_per_step=6.0, forward_ms=4.0, operators=("addmm", "relu"))
"""A decoder whose output is dropped."""


def metric(**changes: Any) -> Evidence:
    """A metric in each step."""
    return with_(healthy(), metrics=(with_(METRIC, **changes),))


def unused(**changes: Any) -> Evidence:
    """Tensors that nobody reads."""
    return with_(healthy(), unused_work=(with_(DECODER, **changes),))
