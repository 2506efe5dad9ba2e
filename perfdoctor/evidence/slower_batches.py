"""Whether making a batch takes longer and longer, where it is made, and in which lines of the data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..recording.lines import LinesWindow
from ..recording.model import Columns, ProcessRecording
from .courses import LEAST, Course, course, gain
from .model import GrowingLine, Site, SlowerBatches
from .steady import Selection

_FIRST_FETCHES = 2
"""Batches of each maker that are left out: imports, page faults, cold caches."""
_ALL_TIMED, _TIMED_OF = 200, 8
"""In the training process all of the first batches are timed, and then one in so many."""
_GROWN = 0.10
"""At the lower end of the interval: as the steps of healthy jobs, batches drift by a few per cent."""


def build(process: ProcessRecording, workers: Sequence[ProcessRecording], steps: Selection) -> SlowerBatches | None:
    """Of the loader that the steady steps drew from first, by all workers: whose they are is not known."""
    steady = np.isin(process.batches["step"], steps.column("step"))
    drawn = set(process.batches["loader"][steady].tolist())
    loaders = [made for made in process.loaders if made.id in drawn]
    if not loaders:
        return None
    made = loaders[0]
    makers = [
        one for one in (workers if made.num_workers else (process,)) if len(one.fetches) >= LEAST + _FIRST_FETCHES
    ]
    courses = [(course(_numbers(maker), _took_ms(maker.fetches)), maker) for maker in makers]
    slower = [(found, maker) for found, maker in courses if found.is_gradual and found.low >= _GROWN]
    if 2 * len(slower) <= len(courses):
        return None
    early_ms, late_ms, low = (
        _median([getattr(found, name) for found, _ in slower]) for name in ("early", "late", "low")
    )
    per_step = float(steady.sum()) / steps.count
    kept = max((maker for _, maker in slower), key=lambda maker: len(maker.growth.containers) if maker.growth else 0)
    return SlowerBatches(
        dataset=made.dataset,
        num_workers=made.num_workers,
        early_ms=early_ms,
        late_ms=late_ms,
        low=low,
        wait_ms=(late_ms - early_ms) * per_step / max(1, made.num_workers),
        getitem_ms=_median([gain(_settled(maker.fetches)["getitem_us"] / 1000) for _, maker in slower]),
        site=made.site if isinstance(made.site, Site) else None,
        containers=kept.growth.containers if made.num_workers and kept.growth is not None else (),
        lines=_lines([pair for pair in slower if pair[1].later_making is not None]),
    )


def _numbers(maker: ProcessRecording) -> npt.NDArray[np.float64]:
    """Of the timed batches, among all that it made."""
    number = np.arange(_FIRST_FETCHES, len(maker.fetches), dtype=float)
    if maker.worker is None:
        number = np.where(number < _ALL_TIMED, number, _ALL_TIMED + _TIMED_OF * (number - _ALL_TIMED))
    return number


def _settled(fetches: Columns) -> Columns:
    return fetches.where(slice(_FIRST_FETCHES, None))


def _took_ms(fetches: Columns) -> npt.NDArray[np.float64]:
    settled = _settled(fetches)
    return np.asarray((settled["getitem_us"] + settled["collate_us"] + settled["gc_us"]) / 1000)


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
