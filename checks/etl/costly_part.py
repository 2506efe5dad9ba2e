"""Batches that more workers would not bring in time: the part that makes them slow, or samples picked one by one."""

from __future__ import annotations

from perfdoctor.api.causes import Overlap
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement
from perfdoctor.api.quantities import Fetch, Missing

from .._shared.loader_fixes import batched_indexing
from .making import CHEAPER, doing, hottest, picks_samples_singly, told
from .waiting import Case, fetch_measurements


def costly_part(case: Case, fetch: Fetch, model: Overlap) -> Finding:
    """Storage, the transform or `collate_fn`."""
    if picks_samples_singly(case, fetch):
        return _per_sample_indexing(case, fetch)
    blamed, line = case.split.blamed, hottest(fetch)
    where, measured = told(fetch)
    way, code = CHEAPER[blamed]
    return case.finding(
        blamed.value,
        f"a batch takes {{make_ms}}, mostly {doing(case)}",
        (
            "handing batches over from workers would cost what it saves, so the batch itself must become cheaper"
            if not case.loader.num_workers and model.make_ms < model.handover_ms[1]
            else "more workers would not keep up on {cpus:usable CPU}, so the batch itself must become cheaper"
        )
        + where,
        Fix(
            text=f"Make the batch cheaper: {way}.",
            code=code,
            risk="None for the results, if the samples stay the same.",
            remedies=("etl.replay",),
        ),
        f"the share of making a batch that is spent {doing(case)}, of which a cheaper way keeps 10 to 75 %",
        low=0.25 * case.part(blamed),
        high=0.9 * case.part(blamed),
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
    )


def _is_a_librarys(case: Case, fetch: Fetch) -> bool:
    """Whether batches are made in the training process, and by no line of the user's."""
    return not case.loader.num_workers and not isinstance(case.evidence.code_lines, Missing) and not fetch.lines


def _per_sample_indexing(case: Case, fetch: Fetch) -> Finding:
    samples = case.loader.batch_size or 1
    where, measured = told(fetch)
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
        warning_share=case.limits.indexing_share,
    )
