"""Checkpoints over all steps after the warm-up, the irregular ones included: most of those save."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np

from ..recording.model import ProcessRecording
from ..recording.process import Call, Saved
from .model import Checkpoints, Missing, Site, Step
from .steady import Selection

_COMPRESSED = "save.compressed"
"""Calls that compress what they write, which takes some 50 times as long as writing it."""
_SAVES_US = 200
"""In a step, from which on it saves: less is no file, but a copy into memory of a few numbers."""
_LEAST_RECORDS = 4
"""Of a line's calls, half a second apart or more."""
_RARER, _CHANCE = 0.6, 0.01
"""Times as many in the later half, at most, and how probable that may be where both halves save alike."""
_GROWN, _IN_HALF = 1.5, 1.1
"""Of what is written at first, and of what was written half the time before."""


def build(process: ProcessRecording, selection: Selection, step: Step | Missing) -> Checkpoints | Missing:
    """By the steps that save, and the line that does so longest."""
    if isinstance(step, Missing):
        return step
    after = selection.rows.where(selection.rows["step"] >= selection.first)
    spent = after["checkpoint_us"] / 1000
    saving = after["checkpoint_us"] >= _SAVES_US
    places = np.flatnonzero(saving)
    every = float(np.diff(places).mean()) if places.size >= 2 else float(len(after))
    # Windows lengthen a step, and an epoch's start has costs of its own.
    clear = saving & (after["marked"] == 0)
    apart = clear & ~np.isin(after["step"], [iterator.step for iterator in process.iterators])
    timed, beyond = (some if some.any() else saving for some in (clear, apart))
    save_ms = float(spent[timed].mean()) if timed.any() else 0.0
    rest_ms = step.step_ms - step.parts.checkpoint
    excess_ms = float(np.median(after["wall_us"][beyond])) / 1000 - rest_ms if beyond.any() else 0.0
    saved, fsyncs, beside, copies = (
        [call for call in process.calls if call.kind in kinds and call.step > selection.first]
        for kinds in (("save", _COMPRESSED), ("fsync",), ("save.with", _COMPRESSED), ("save.copy",))
    )
    site, size, calls = _dearest(saved)
    early, late = _growing(saved, site)
    each = max(1, places.size)

    def within(some: list[Call]) -> float:
        return min(save_ms, sum(call.us for call in some) / 1000 / each)

    return Checkpoints(
        saves=int(places.size),
        steps=len(after),
        every=every,
        save_ms=save_ms,
        most_ms=max(save_ms, excess_ms),
        is_steady=step.parts.checkpoint > 0,
        site=site,
        bytes=size,
        calls_per_save=calls / each,
        contents=_contents(process, site),
        early_bytes=early,
        late_bytes=late,
        fsyncs_per_save=sum(call.count for call in fsyncs) / each,
        copy_ms=within(copies),
        late_saves=_rarer(int((places >= len(after) / 2).sum()), int(places.size)),
        copy_bytes=round(sum(call.bytes for call in copies) / each),
        beside_at=_dearest(beside)[0],
        beside_ms=within(beside),
        fsync_ms=within(fsyncs),
    )


def _contents(process: ProcessRecording, site: Site | None) -> Saved | None:
    """Of the line's first checkpoint, with what a later one has shown to stay as it is."""
    seen = [saved for saved in process.saved if saved.site is not None and saved.site == site]
    if not seen:
        return None
    later = max(seen, key=lambda saved: saved.unchanged_bytes)
    return replace(
        seen[0],
        unchanged_bytes=later.unchanged_bytes,
        unchanged=later.unchanged,
        unchanged_at=later.unchanged_at,
        asked_at=seen[-1].asked_at,
    )


def _rarer(late: int, saves: int) -> int | None:
    from scipy.special import bdtr  # only here; scipy.stats would take 0.7 s to import

    fewer = saves > 0 and late <= _RARER * (saves - late)
    return late if fewer and bdtr(late, saves, 0.5) <= _CHANCE else None


def _dearest(calls: list[Call]) -> tuple[Site | None, int, int]:
    """The line that takes longest, bytes of one of its calls, and calls of all lines."""
    totals: dict[Site | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    for call in calls:
        for number, value in enumerate((call.us, call.bytes, call.count)):
            totals[call.site][number] += value
    if not totals:
        return None, 0, 0
    site = max(totals, key=lambda one: totals[one][0])
    _, size, count = totals[site]
    return site, size // max(1, count), sum(call.count for call in calls)


def _growing(saved: list[Call], site: Site | None) -> tuple[int, int]:
    """Bytes of one call of a line at first and of late, where it never writes less than before and both halves of its
    calls grow; else nothing. A checkpoint that is as large as the one before, but for the digits in it, does not grow,
    and an optimizer's state makes the second one larger, once."""
    found = [call.bytes / call.count for call in saved if call.site == site and call.bytes]
    if len(found) < _LEAST_RECORDS or any(later < before for before, later in pairwise(found)):
        return 0, 0
    early, middle, late = found[0], found[len(found) // 2], found[-1]
    gradual = middle >= _IN_HALF * early and late >= _IN_HALF * middle
    return (round(early), round(late)) if gradual and late >= _GROWN * early else (0, 0)
