"""Python's collector, which runs inside the workers."""

from __future__ import annotations

from perfdoctor.api.findings import Finding, Fix, milliseconds
from perfdoctor.api.quantities import Cause, Fetch

from .waiting import Case, fetch_measurements

_WITHOUT_CALL = (0.85, 1.0)
"""Of collections that a line asks for: up to 15 % come back, as Python's own."""
_CALMER = (0.5, 0.95)
"""Of collections that Python starts, saved by thresholds of 50,000."""


def worker_collections(case: Case, fetch: Fetch) -> Finding:
    """Neither more workers nor a cheaper data set."""
    loader, asked = case.loader, fetch.gc_line is not None
    spared = min(case.wait, fetch.gc_ms * loader.steady_batches_per_step / max(1, loader.num_workers))
    least, most = _WITHOUT_CALL if asked else _CALMER
    return case.finding(
        "worker-collections",
        "garbage collections take {gc_ms} of each batch",
        "a line that runs in the workers calls `gc.collect()`, which walks every object that Python tracks; tensors "
        "do not need it"
        if asked
        else "making a batch takes {make_ms}; the data set makes so many containers (lists, dicts, objects) that "
        "Python keeps looking for cycles, and walks all that the worker inherited from the training process",
        Fix(
            text="Take the call out of the data set and `collate_fn`."
            if asked
            else "Freeze what the workers inherit, and raise their collector's thresholds.",
            code="def collate(samples):\n    return torch.stack(samples)  # without gc.collect()"
            if asked
            else "def calm(worker_id):\n    gc.freeze()\n    gc.set_threshold(50_000, 50, 100)\n\n"
            "loader = DataLoader(dataset, ..., worker_init_fn=calm)",
            risk="Reference cycles in the workers, and the memory they hold, live longer.",
        ),
        "the measured pauses, shared among the workers"
        + ("; at most 15 % remain as automatic collections" if asked else "; thresholds of 50,000 save half or more"),
        low=least * min(spared, case.part(Cause.GC)),
        high=most * spared,
        extra=(*fetch_measurements(fetch), milliseconds("gc_ms", fetch.gc_ms, "collections while a batch is made")),
        at=fetch.gc_line,
    )
