"""Samples that are made again in every epoch, though they are the same each time and would fit into memory, or though
the data set keeps them: in workers that end with the epoch. Or the part of them that comes before anything random."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Cause, Fetch, Missing, SamplesAsked, Site

from .._shared.loader_fixes import persistent_workers
from .._shared.samples import comes_again, fits, free_bytes
from .cheaper import CHEAPER
from .crowding import crowding
from .making import hottest, is_cheap
from .waiting import Case, fetch_measurements

_SAVED = (0.75, 1.0)
"""Of the data set's time: picking a sample from memory takes some of it."""
_BASIS = "the share of the wait that the data set explains, of which picking a sample from memory keeps up to 25 %"
_OBJECT_BYTES = 500
"""Of the objects around a sample's numbers: a tuple, two tensors."""


_KEPT = 0.9
"""Of a sample's time, spared the second time: from there on the data set keeps what it has made. A file's pages that
are mapped the first time spare four fifths the next."""


def samples_made_again(case: Case, fetch: Fetch, beside: float) -> Finding | None:
    """None where samples differ, are cheap, are made once only or do not fit, or where that is not known. `beside`: the
    share of the making that other findings are about."""
    loader = case.loader
    again = comes_again(case.evidence, loader.steady_batches_per_step * case.samples, loader.length or 0)
    if not again or is_cheap(case, fetch):
        return None
    return _lost_by_workers(case, fetch, beside) or _made_again(case, fetch, beside) or _part(case, fetch, beside)


def _lost_by_workers(case: Case, fetch: Fetch, beside: float) -> Finding | None:
    """What the data set keeps, in workers that end with each epoch. None where it keeps nothing, or they stay."""
    loader, asked = case.loader, case.loader.again
    ends = loader.num_workers > 0 and not loader.persistent_workers
    kept = asked.kept if isinstance(asked, SamplesAsked) else 0.0
    if not ends or kept < _KEPT:
        return None
    return _finding(
        case,
        fetch,
        kept * max(0.0, 1 - beside),
        share("kept", kept, "of the time of a sample, spared when it is asked for again"),
        id="PD03.lost-by-workers",
        message="workers end with each epoch, and what the data set keeps ends with them: {getitem_ms} per batch",
        reasoning="two samples were asked for again after the last step, and took {kept} less than the first time: the "
        "data set keeps what it makes, but in the memory of a worker, which the next epoch's does not have",
        place=loader.site,
        fix=persistent_workers(case.evidence.job, loader.made),
        basis="the share of the wait that the data set explains, less what a sample takes that it has kept",
    )


def _made_again(case: Case, fetch: Fetch, beside: float) -> Finding | None:
    loader, asked, line = case.loader, case.loader.again, hottest(fetch)
    if isinstance(asked, Missing) or asked.same is not True:
        return None
    size = _kept_bytes(case, asked.bytes)
    if size is None:
        return None
    # Whoever keeps samples does it where they are asked for, however deep below that line most of the time is spent.
    place = (loader.site if line is None else line.site) if isinstance(asked.at, Missing) else asked.at
    return _finding(
        case,
        fetch,
        max(0.0, 1 - beside),
        *_kept(case, size, "of all samples"),
        id="PD03.samples-made-again",
        message="each epoch makes the same samples again: {getitem_ms} per batch in the data set",
        reasoning="two samples were each asked for twice after the last step: they were the same both times, and no "
        "generator of random numbers was used; all {samples:sample} would take {all_bytes}, of {free_bytes} free",
        place=place,
        fix=Fix(
            text="Make the samples once and keep them: in a list, or in an array that is saved before training.",
            code=CHEAPER[Cause.TRANSFORM][1],
            risk="The first epoch starts later by what making them takes, and random changes that are added to the "
            "data set later would be made once, too.",
        ),
        basis=_BASIS,
    )


def _part(case: Case, fetch: Fetch, beside: float) -> Finding | None:
    """Of samples that differ: what comes before anything random."""
    asked = case.loader.again
    fixed = asked.fixed if isinstance(asked, SamplesAsked) else None
    size = None if fixed is None else _kept_bytes(case, fixed.bytes)
    if fixed is None or size is None:
        return None
    return _finding(
        case,
        fetch,
        max(0.0, fixed.share - beside),
        share("fixed", fixed.share, "of the making of a sample, before anything random"),
        Measurement("drawn_at", str(fixed.drawn_at), "text", "where random numbers are first drawn"),
        *_kept(case, size, "of what all samples hold then"),
        id="PD03.part-made-again",
        message="each epoch makes the same part of each sample again, {fixed} of {getitem_ms} per batch",
        reasoning="two samples were asked for again, line by line: up to {drawn_at}, where random numbers are drawn, "
        "all names held the same each time; what they hold of all {samples:sample} would take {all_bytes}, of "
        "{free_bytes} free",
        place=fixed.at,
        fix=Fix(
            text="Make that part once and keep it; leave to `__getitem__` what is random.",
            code="self.prepared = [prepare(record) for record in records]  # once, in __init__\n"
            "sample = augment(self.prepared[index])  # in __getitem__",
            risk="The first epoch starts later by what making them takes.",
        ),
        basis=_BASIS,
    )


def _finding(
    case: Case,
    fetch: Fetch,
    part: float,
    *extra: Measurement,
    id: str,
    message: str,
    reasoning: str,
    place: Site | Missing | None,
    fix: Fix,
    basis: str,
) -> Finding | None:
    """Of such a part of the making that need not be done again; None where that is little of the step."""
    least, most = crowding(case)
    waited = case.part(Cause.TRANSFORM, Cause.STORAGE)
    low, high = _SAVED[0] * part * (waited + least), _SAVED[1] * part * (waited + most)
    saved_share = (low + high) / 2 / case.step.step_ms
    if saved_share < case.limits.min_share:
        return None
    return Finding(
        id=id,
        severity=severity(saved_share, case.limits.min_share, case.limits.error_share),
        confidence=Confidence.MEDIUM,
        message=message,
        reasoning=reasoning,
        evidence=(
            *case.shared(case.wait),
            *fetch_measurements(fetch),
            milliseconds("getitem_ms", fetch.getitem_ms, "in the data set, per batch"),
            *extra,
        ),
        location=location(place),
        fix=fix,
        savings=savings(case.step, low, high, basis, part=Part.INPUT_WAIT),
    )


def _kept_bytes(case: Case, each: int) -> int | None:
    """Of all samples, where they fit into memory with so many bytes each."""
    size = (case.loader.length or 0) * (each + _OBJECT_BYTES)
    return size if size and fits(case.evidence, size, case.limits.memory_share) else None


def _kept(case: Case, size: int, what: str) -> tuple[Measurement, ...]:
    return (
        Measurement("samples", case.loader.length or 0, "count", "samples in the data set"),
        Measurement("all_bytes", size, "bytes", what),
        Measurement("free_bytes", free_bytes(case.evidence), "bytes", "of memory that is free"),
    )
