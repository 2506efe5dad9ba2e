"""Batches that are made slowly: where, and how to make them cheaper."""

from __future__ import annotations

from perfdoctor.api.causes import Overlap
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, milliseconds, share
from perfdoctor.api.quantities import Cause, CodeLine, Fetch, Missing, SamplesAsked

from .._shared.loader_fixes import batched_indexing
from .cheaper import WITHOUT_LOOP, WON_BACK, cheaper_batch
from .crowding import crowding
from .loops import ElementLoop, element_loop
from .waiting import Case, fetch_measurements

_IN = {Cause.STORAGE: "waiting for storage", Cause.TRANSFORM: "in `__getitem__`", Cause.COLLATE: "in `collate_fn`"}
_TELLING = 0.25
"""A line that takes a quarter of making a batch is worth a look; below, the time is all over the place."""
_CHEAP_SAMPLE_MS = 0.1
"""Up to this time per sample, `__getitem__` is Python overhead rather than work."""
_LOOKED_UP_US = 15.0
"""Of a line per sample, from which on it does more than index: two tensors take 5 to 8 us, a row of a frame 25."""
_TOGETHER = (0.5, 0.95)
"""Of collating, and of the wait, that numbers which lie together save."""
_TORCH_COLLATE = ("", "default_collate", "default_convert")


def doing(case: Case) -> str:
    """What most of the making of a batch is."""
    if case.split.blamed is Cause.TRANSFORM and case.loader.iterable:
        return "in `__iter__`"
    return _IN[case.split.blamed]


def hottest(fetch: Fetch) -> CodeLine | None:
    """The line of the data set or `collate_fn` to look at first."""
    line = fetch.lines[0] if fetch.lines else None
    return line if line is not None and line.share >= _TELLING else None


def told(fetch: Fetch) -> tuple[str, tuple[Measurement, ...]]:
    """Where a batch is made slowly: a clause, and its measurements."""
    line = hottest(fetch)
    if line is None:
        return "", ()
    return (
        "; {hottest_share} of the making is spent at {hottest}",
        (
            Measurement("hottest", str(line.site), "text", "hottest line of making a batch"),
            share("hottest_share", line.share, "of the making, on that line"),
        ),
    )


def is_cheap(case: Case, fetch: Fetch) -> bool:
    """Whether what a sample takes is Python's part of it."""
    return fetch.getitem_ms / max(1.0, case.samples) < _CHEAP_SAMPLE_MS


def picks_samples_singly(case: Case, fetch: Fetch) -> bool:
    """Whether a batch is many cheap samples, so that Python's part of each is most of it."""
    samples = case.loader.batch_size or 0
    if case.loader.iterable:  # there is nothing to index
        return False
    # A function of the job's own that takes most of the time does something: look there.
    if case.split.blamed is Cause.COLLATE and case.loader.collate not in _TORCH_COLLATE:
        return False
    cheap = samples > 1 and is_cheap(case, fetch)
    return case.loader.num_workers == 0 and cheap and case.split.blamed is not Cause.STORAGE


def costly_part(case: Case, fetch: Fetch, model: Overlap) -> Finding:
    """Storage, the transform or `collate_fn`. A transform is an ill only where it is a loop over elements: that it
    takes long does not say that it could take less."""
    if _are_scattered(case):
        return _scattered(case, fetch)
    if picks_samples_singly(case, fetch):
        return _per_sample_indexing(case, fetch)
    blamed, line = case.split.blamed, hottest(fetch)
    loop = element_loop(case, fetch) if blamed is Cause.TRANSFORM else None
    where, measured = told(fetch)
    if loop is not None:
        line = loop.lines[0]
        where, measured = _looping(loop)
    elif blamed is Cause.TRANSFORM:
        where += _nothing_twice(case)
    least, most = crowding(case)
    if least:
        where += "; meanwhile the training thread waits {crowded_ms} per step for a CPU, which the workers have"
        measured += (milliseconds("crowded_ms", least, "training without a CPU, per step"),)
    return case.finding(
        blamed.value,
        f"a batch takes {{make_ms}}, mostly {'in a Python loop' if loop is not None else doing(case)}",
        (
            "handing batches over from workers would cost what it saves, so the batch itself must become cheaper"
            if not case.loader.num_workers and model.make_ms < model.handover_ms[1]
            else "more workers would not keep up on {cpus:usable CPU}, so the batch itself must become cheaper"
        )
        + where,
        WITHOUT_LOOP if loop is not None else cheaper_batch(blamed),
        f"the share of making a batch that is spent {doing(case)}, of which a cheaper way keeps 10 to 75 %"
        + (", and what training waits for a CPU" if least else ""),
        low=WON_BACK[0] * (case.part(blamed) + least),
        high=WON_BACK[1] * (case.part(blamed) + most),
        ceiling=case.wait + most,
        extra=(
            *fetch_measurements(fetch),
            Measurement("cpus", case.evidence.machine.usable_cpus, "count", "usable CPUs"),
            *measured,
        ),
        # What must change is what makes the batch, not the line that makes the loader.
        at=None if line is None else line.site,
        confidence=Confidence.MEDIUM,
        # Where no line of the user's makes the batch there is little to make cheaper.
        warning_share=case.limits.error_share if _is_a_librarys(case, fetch) else None,
        is_ill=blamed is not Cause.TRANSFORM or loop is not None,
    )


def _looping(loop: ElementLoop) -> tuple[str, tuple[Measurement, ...]]:
    """The loop, as a clause, and its measurements."""
    return (
        "; {loop} runs {loop_runs:time} for each sample, and lines that run so often take {loop_share} of the making",
        (
            Measurement("loop", str(loop.lines[0].site), "text", "the dearest line of the loop"),
            Measurement("loop_runs", loop.runs, "count", "its runs per sample"),
            share("loop_share", loop.share, "of the making, on lines that run so often"),
        ),
    )


def _nothing_twice(case: Case) -> str:
    """Why a transform that takes long need not be wrong."""
    asked = case.loader.again
    differ = isinstance(asked, SamplesAsked) and asked.same is False
    return "; nothing in it is known to be needless: " + (
        "samples differ each time they are made, and no line of it runs for each of their elements"
        if differ
        else "no function of it was seen to return the same again, and no line of it runs for each element of a sample"
    )


def _is_a_librarys(case: Case, fetch: Fetch) -> bool:
    """Whether batches are made in the training process, and by no line of the user's."""
    return not case.loader.num_workers and not isinstance(case.evidence.code_lines, Missing) and not fetch.lines


def _are_scattered(case: Case) -> bool:
    asked = case.loader.again
    is_joined = case.split.blamed is Cause.COLLATE and case.loader.collate in _TORCH_COLLATE
    return is_joined and isinstance(asked, SamplesAsked) and asked.scattered


def _scattered(case: Case, fetch: Fetch) -> Finding:
    where, measured = told(fetch)
    line = hottest(fetch)
    return case.finding(
        "scattered-samples",
        "a sample's numbers lie far apart in memory",
        "a sample is a view of a tensor in which numbers of other samples lie between its own: to put it into a batch "
        f"reads a line of memory for each of them{where}",
        Fix(
            text="Lay the data out sample by sample, once.",
            code="records = records.permute(2, 3, 0, 1).contiguous()  # before the first batch: samples first\n"
            "return records[row, column]  # numbers that lie together",
            risk="While it is made, the data are in memory twice.",
        ),
        "the time that is spent collating; numbers that lie together were copied 2 to 7 times as fast elsewhere",
        low=_TOGETHER[0] * case.part(Cause.COLLATE),
        high=_TOGETHER[1] * case.wait,
        extra=(*fetch_measurements(fetch), *measured),
        at=line.site if line is not None else case.loader.maker,
        confidence=Confidence.MEDIUM,
    )


def _per_sample_indexing(case: Case, fetch: Fetch) -> Finding:
    samples = case.loader.batch_size or 1
    where, measured = told(fetch)
    line = hottest(fetch)
    looks_up = line is not None and 1000 * line.share * fetch.total_ms >= _LOOKED_UP_US * samples
    return case.finding(
        "per-sample-indexing",
        "{samples:cheap sample is|cheap samples are} picked one by one",
        "a sample takes only {sample_us} to fetch, so the time goes into Python and collating; handing batches over "
        f"from workers would cost more than it saves{where}",
        batched_indexing(),
        "indexing a tensor once per batch instead of once per sample had a speed-up of 2.7x to 15x elsewhere",
        low=0.6 * case.wait,
        high=0.95 * case.wait,
        extra=(
            *fetch_measurements(fetch),
            Measurement("samples", samples, "count", "samples per batch"),
            Measurement("sample_us", fetch.getitem_ms / samples * 1000, "us", "fetching one sample"),
            *measured,
        ),
        at=line.site if line is not None and looks_up else None,
        warning_share=case.limits.indexing_share,
    )
