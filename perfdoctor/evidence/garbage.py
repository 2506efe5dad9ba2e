"""Python's cyclic garbage collector over the steady steps."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ..recording.model import ProcessRecording
from ..recording.process import FullCollection
from .model import CollectSite, GarbageCollection, Missing, Site
from .steady import Selection


def build(process: ProcessRecording, selection: Selection) -> GarbageCollection:
    """Pauses by cause. Collections of young generations are counted, full ones and explicit ones listed."""
    steady_steps = frozenset(selection.column("step").tolist())
    listed = [event for event in process.full_collections if event.step in steady_steps]
    explicit = _explicit(listed, selection.count)
    told = {site.site for site in explicit}
    seldom = frozenset(selection.rows["step"][selection.irregular].tolist())
    seldom_span = selection.span / selection.irregular_each
    rare = [event for event in process.full_collections if event.step in seldom and event.site not in told]
    total_ms = float(selection.column("gc_us").mean()) / 1000
    explicit_ms = sum(site.ms_per_step for site in explicit)
    full = [event for event in listed if event.generation == 2]
    return GarbageCollection(
        ms_per_step=total_ms,
        automatic_ms_per_step=max(0.0, total_ms - explicit_ms),
        per_step=_rates(process, selection, len(full)),
        longest_pause_ms=max((event.us for event in listed), default=0) / 1000,
        full_collected=float(np.mean([event.collected for event in full or rare])) if full or rare else 0.0,
        explicit=(*explicit, *(replace(site, is_rare=True) for site in _explicit(rare, seldom_span))),
        tracked_objects=Missing("the process ended before they were counted")
        if process.end is None
        else process.end.tracked_objects,
        enabled=process.settings.gc_enabled if process.settings else True,
    )


def _explicit(listed: list[FullCollection], steps: float) -> tuple[CollectSite, ...]:
    by_site: dict[Site, list[FullCollection]] = defaultdict(list)
    for event in listed:
        if event.site is not None:
            by_site[event.site].append(event)
    found = [
        CollectSite(
            site=site,
            calls_per_step=len(events) / steps,
            ms_per_step=sum(event.us for event in events) / 1000 / steps,
            pause_ms=float(np.median([event.us for event in events])) / 1000,
        )
        for site, events in by_site.items()
    ]
    return tuple(sorted(found, key=lambda site: -site.ms_per_step))


def _rates(process: ProcessRecording, selection: Selection, full: int) -> tuple[float, float, float]:
    blocks = [block for block in process.collections if block.step > selection.first]
    young = [sum(block.counts[generation] for block in blocks) for generation in (0, 1)]
    span = max(1, selection.span)
    return young[0] / span, young[1] / span, full / selection.count
