"""Checkpoints over all steps after the warm-up, the irregular ones included: most of those save."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ..recording.model import ProcessRecording
from .model import Checkpoints, Missing, Site, Step
from .steady import Selection

_SAVES_US = 200
"""In a step, from which on it saves: less is no file, but a copy into memory of a few numbers."""


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
    site, size, calls = _dearest(process, selection)
    return Checkpoints(
        saves=int(places.size),
        steps=len(after),
        every=every,
        save_ms=save_ms,
        most_ms=max(save_ms, excess_ms),
        is_steady=step.parts.checkpoint > 0,
        site=site,
        bytes=size,
        calls_per_save=calls / max(1, places.size),
        contents=next((saved for saved in process.saved if saved.site is not None and saved.site == site), None),
    )


def _dearest(process: ProcessRecording, selection: Selection) -> tuple[Site | None, int, int]:
    """The line that saves longest, bytes of one of its calls, and calls of all lines."""
    totals: dict[Site | None, list[int]] = defaultdict(lambda: [0, 0, 0])
    for call in process.calls:
        if call.kind == "save" and call.step > selection.first:
            for number, value in enumerate((call.us, call.bytes, call.count)):
                totals[call.site][number] += value
    if not totals:
        return None, 0, 0
    site = max(totals, key=lambda one: totals[one][0])
    _, size, count = totals[site]
    return site, size // max(1, count), sum(calls for *_, calls in totals.values())
