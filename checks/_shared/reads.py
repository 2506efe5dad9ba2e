"""Scalar reads, and whose they are."""

from __future__ import annotations

from perfdoctor.api.quantities import CallSite


def of_the_job(calls: tuple[CallSite, ...]) -> tuple[CallSite, ...]:
    """Scalar reads of the job, the dearest first; torch's optimizers read their step counters themselves, and the
    engine of autograd, under anomaly detection, every gradient."""
    return tuple(
        call
        for call in calls
        if call.kind == "scalar_read"
        and call.detail != "optimizer"
        and not (call.by_library and call.detail == "backward")
        and not call.site.via.startswith("torch/optim/")
    )
