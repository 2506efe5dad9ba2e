"""Runs that compute what training does not need, or what is there from the epoch before."""

from __future__ import annotations

from typing import Any

from samples import healthy, with_

from perfdoctor.evidence.model import AsideWork, Evidence, Missing, SamplesAsked, SampleWork, Site, WeightedWork

METRIC_LINE = Site("train.py", 31, "training_step")
DECODER_LINE = Site("model.py", 22, "forward")
METRIC = AsideWork(at=METRIC_LINE, ops_per_step=40.0, forward_ms=5.0, operators=("sort", "cumsum", "cat"))
"""An exact AUROC of the epoch so far: 5 of the 25 ms."""
DECODER = AsideWork(at=DECODER_LINE, ops_per_step=6.0, forward_ms=4.0, operators=("addmm", "relu"))
"""A decoder whose output is dropped."""


def metric(**changes: Any) -> Evidence:
    """A metric in each step."""
    return with_(healthy(), metrics=(with_(METRIC, **changes),))


def validated(**changes: Any) -> Evidence:
    """Distributions that are made and sampled at two lines of each step, with all tests; of 25 ms."""
    made = AsideWork(METRIC_LINE, ops_per_step=160.0, forward_ms=1.0, operators=("_is_all_true", "gt", "eq"))
    scored = with_(made, at=with_(METRIC_LINE, line=36), ops_per_step=80.0, forward_ms=0.5)
    return with_(healthy(), metrics=(with_(scored, **changes), with_(made, **changes)))


def unused(**changes: Any) -> Evidence:
    """Tensors that nobody reads."""
    return with_(healthy(), unused_work=(with_(DECODER, **changes),))


def weighted(**changes: Any) -> Evidence:
    """A decoder whose loss has a weight of 0; of 25 ms."""
    work = WeightedWork(at=METRIC_LINE, ops_per_step=7.0, forward_ms=2.0, backward_ms=4.0, operators=("addmm", "relu"))
    return with_(healthy(), weighted=(with_(work, **changes),))


BACKBONE = AsideWork(at=Site("train.py", 35, "main"), ops_per_step=40.0, forward_ms=8.0, operators=("convolution",))
"""A frozen backbone: 8 of the 25 ms."""


def same_each_epoch(asked: SamplesAsked | None = None, loader: dict[str, Any] | None = None, **work: Any) -> Evidence:
    """Features of 2 kB of each of 5,000 samples, of which a data set gives the same each time."""
    run = healthy()
    assert not isinstance(run.loaders, Missing)
    again = asked or SamplesAsked(0, True, 40_000)
    settings = {"again": again, "length": 5_000, "collate": "default_collate", **(loader or {})}
    drawn = with_(run.loaders[0], **settings)
    made = with_(SampleWork(lines=(BACKBONE,), bytes=2_000, batch=32, by_loader=True), **work)
    return with_(run, loaders=(drawn,), of_samples=made)
