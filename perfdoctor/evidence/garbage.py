"""Python's cyclic garbage collector over the steady steps."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..recording.model import FullCollection, ProcessRecording
from .model import CollectSite, GarbageCollection, Missing, Site
from .places import Places
from .steady import Selection


def build(process: ProcessRecording, selection: Selection, places: Places) -> GarbageCollection:
    """Pauses by cause. Collections of young generations are counted, full ones and explicit ones listed."""
    steady_steps = frozenset(selection.column("step").tolist())
    listed = [event for event in process.full_collections if event.step in steady_steps]
    explicit = _explicit(listed, selection.count, places)
    total_ms = float(selection.column("gc_us").mean()) / 1000
    explicit_ms = sum(site.ms_per_step for site in explicit)
    full = [event for event in listed if event.generation == 2]
    state = process.settings.gc if process.settings else None
    return GarbageCollection(
        ms_per_step=total_ms,
        automatic_ms_per_step=max(0.0, total_ms - explicit_ms),
        per_step=_rates(process, selection, len(full)),
        full_pause_ms=float(np.median([event.us for event in full])) / 1000 if full else 0.0,
        longest_pause_ms=max((event.us for event in listed), default=0) / 1000,
        full_collected=float(np.mean([event.collected for event in full])) if full else 0.0,
        explicit=explicit,
        tracked_objects=Missing("the process ended before they were counted")
        if process.tracked_objects is None
        else process.tracked_objects,
        frozen_objects=state.frozen if state else 0,
        enabled=state.enabled if state else True,
    )


def _explicit(listed: list[FullCollection], steps: int, places: Places) -> tuple[CollectSite, ...]:
    by_site: dict[int, list[FullCollection]] = defaultdict(list)
    for event in listed:
        if event.site >= 0:
            by_site[event.site].append(event)
    unknown = Site("", 0, "")
    found = [
        CollectSite(
            site=places.find(number) or unknown,
            calls_per_step=len(events) / steps,
            ms_per_step=sum(event.us for event in events) / 1000 / steps,
            pause_ms=float(np.median([event.us for event in events])) / 1000,
        )
        for number, events in by_site.items()
    ]
    return tuple(sorted(found, key=lambda site: -site.ms_per_step))


def _rates(process: ProcessRecording, selection: Selection, full: int) -> tuple[float, float, float]:
    blocks = [block for block in process.collections if block.step > selection.first]
    young = [sum(block.counts[generation] for block in blocks) for generation in (0, 1)]
    span = max(1, selection.span)
    return young[0] / span, young[1] / span, full / selection.count
