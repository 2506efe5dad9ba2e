"""Workers that would make batches while the model trains."""

from __future__ import annotations

from perfdoctor.api.causes import Overlap
from perfdoctor.api.findings import Finding, Measurement, milliseconds
from perfdoctor.api.quantities import Fetch

from .._shared.loader_fixes import workers
from .making import CHEAPER, doing, picks_samples_singly, told
from .waiting import Case, fetch_measurements


def too_few_workers(case: Case, fetch: Fetch, model: Overlap, wanted: int) -> Finding:
    """By the model of overlap."""
    low, high = model.saved_with(wanted)
    where, line = told(fetch)
    singly = picks_samples_singly(case, fetch)
    otherwise = (
        "pick the whole batch with one index, which needs no worker"
        if singly
        else f"make the batch cheaper: {CHEAPER[case.split.blamed][0]}"
    )
    return case.finding(
        "too-few-workers",
        "its {workers:worker} cannot keep up" if case.loader.num_workers else "batches are made between the steps",
        f"a batch takes {{make_ms}} to make, mostly {doing(case)}, while training takes {{train_ms}}; "
        f"{{wanted:worker}} would make batches during training{where}",
        workers(case.evidence.job, wanted, otherwise),
        "overlap model: the step cannot be shorter than training, than making a batch shared among the workers, or "
        "than their CPU time on the usable CPUs; plus 0.3 to 2 ms for handing a batch over",
        low=low,
        high=high,
        lanes=wanted,
        extra=(
            *fetch_measurements(fetch),
            milliseconds("train_ms", model.train_ms, "the rest of the step"),
            Measurement("wanted", wanted, "count", "workers that would keep up"),
            *line,
        ),
    )
