"""Runs with collections in the loop."""

from __future__ import annotations

from samples import healthy, step, with_

from perfdoctor.evidence.model import CollectSite, Evidence, Parts, Site

GC_LINE = Site("train.py", 31, "train_epoch")


def explicit_collections(share: float = 0.5, *lines: Site) -> Evidence:
    """Every step collects, in each of the lines alike, for that share of the step together."""
    sites = lines or (GC_LINE,)
    cost = 20.0 * share / (1 - share)
    each = tuple(CollectSite(site, 1.0, cost / len(sites), cost / len(sites)) for site in sites)
    return with_(
        healthy(),
        step=step(Parts(input_wait=0.0, forward=8.0, backward=10.0, optimizer=2.0, gc=cost)),
        gc__ms_per_step=cost,
        gc__automatic_ms_per_step=0.0,
        gc__per_step=(0.0, 0.0, float(len(sites))),
        gc__longest_pause_ms=1.3 * cost / len(sites),
        gc__full_collected=12.0,
        gc__explicit=each,
    )


def automatic_collections(share: float = 0.3, ranks: int = 1) -> Evidence:
    cost = 20.0 * share / (1 - share)
    return with_(
        healthy(),
        step=step(Parts(forward=8.0, backward=10.0, optimizer=2.0, gc=cost)),
        gc__ms_per_step=cost,
        gc__automatic_ms_per_step=cost,
        gc__per_step=(3.0, 0.3, 0.05),
        gc__longest_pause_ms=90.0,
        job__world_size=ranks,
    )
