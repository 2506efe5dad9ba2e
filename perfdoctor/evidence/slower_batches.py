"""Whether making a batch takes longer and longer, where it is made, and in which lines of the data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..recording.lines import LinesWindow
from ..recording.loading import LoaderMade
from ..recording.model import Columns, ProcessRecording
from .courses import LEAST, Course, course, gain
from .model import GrowingLine, Site, SlowerBatches
from .same_loaders import alike, are_told_apart, made_for, started_by
from .steady import Selection

_FIRST_FETCHES = 2
"""Batches of each maker that are left out: imports, page faults, cold caches."""
_ALL_TIMED, _TIMED_OF = 200, 8
"""In the training process all of the first batches are timed, and then one in so many."""
_GROWN = 0.10
"""At the lower end of the interval: as the steps of healthy jobs, batches drift by a few per cent."""


def build(process: ProcessRecording, workers: Sequence[ProcessRecording], steps: Selection) -> SlowerBatches | None:
    """Of the loader that the loop waits for longest by that."""
    groups = alike(process, steps)
    if groups and not are_told_apart(process):
        groups = [[made for group in groups for made in group]]  # the first one speaks for all
    found = [_of(group, process, workers, steps) for group in groups]
    return max((one for one in found if one is not None), key=lambda one: one.wait_ms, default=None)


def _of(
    group: Sequence[LoaderMade], process: ProcessRecording, workers: Sequence[ProcessRecording], steps: Selection
) -> SlowerBatches | None:
    """Of loaders that count as one, by those who make their batches."""
    made, ids = group[0], [one.id for one in group]
    makers = started_by(process, workers, ids) if made.num_workers else (process,)
    timed = [(_numbered(maker, ids), maker) for maker in makers]
    courses = [(course(number, took), maker) for (number, took), maker in timed if len(took) >= LEAST]
    slower = [(found, maker) for found, maker in courses if found.is_gradual and found.low >= _GROWN]
    if 2 * len(slower) <= len(courses):
        return None
    early_ms, late_ms, low = (
        _median([getattr(found, name) for found, _ in slower]) for name in ("early", "late", "low")
    )
    steady = np.isin(process.batches["step"], steps.column("step")) & np.isin(process.batches["loader"], ids)
    per_step = float(steady.sum()) / steps.count
    kept = max((maker for _, maker in slower), key=lambda maker: len(maker.growth.containers) if maker.growth else 0)
    return SlowerBatches(
        dataset=made.dataset,
        num_workers=made.num_workers,
        early_ms=early_ms,
        late_ms=late_ms,
        low=low,
        wait_ms=(late_ms - early_ms) * per_step / max(1, made.num_workers),
        getitem_ms=_median([gain(_settled(maker.fetches, ids)["getitem_us"] / 1000) for _, maker in slower]),
        site=made.site if isinstance(made.site, Site) else None,
        containers=kept.growth.containers if made.num_workers and kept.growth is not None else (),
        lines=_lines([pair for pair in slower if pair[1].later_making is not None]),
    )


def _numbered(maker: ProcessRecording, ids: Sequence[int]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Of the timed batches of these loaders: their numbers among all that it made, and what they took, ms."""
    number = np.arange(len(maker.fetches))
    if maker.worker is None:
        number = np.where(number < _ALL_TIMED, number, _ALL_TIMED + _TIMED_OF * (number - _ALL_TIMED))
    numbered = Columns({**maker.fetches.arrays, "number": number})
    settled = _settled(numbered, ids)
    took_us = settled["getitem_us"] + settled["collate_us"] + settled["gc_us"]
    return settled["number"].astype(float), np.asarray(took_us / 1000)


def _settled(fetches: Columns, ids: Sequence[int]) -> Columns:
    return made_for(fetches, ids).where(slice(_FIRST_FETCHES, None))


def _median(values: Sequence[float]) -> float:
    return float(np.median(np.array(values)))


def _lines(watched: Sequence[tuple[Course, ProcessRecording]]) -> tuple[GrowingLine, ...]:
    """Of a worker whose batch was made line by line twice: at first and of late."""
    for found, maker in watched:
        first, later = maker.making, maker.later_making
        if not isinstance(first, LinesWindow) or not isinstance(later, LinesWindow):
            continue
        before = {line.site: line.share * found.early for line in first.lines if line.called}
        after = {line.site: line.share * found.late for line in later.lines if line.called}
        grown = [
            GrowingLine(
                site, "other", before.get(site, 0.0), took, (took - before.get(site, 0.0)) / (found.late - found.early)
            )
            for site, took in after.items()
            if took > before.get(site, 0.0)
        ]
        return tuple(sorted(grown, key=lambda line: -line.share))
    return ()
