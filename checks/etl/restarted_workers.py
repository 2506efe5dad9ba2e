"""Workers that each epoch starts anew. Their start is rarely in the steady step, so it has a part of its own."""

from __future__ import annotations

from perfdoctor.api.causes import restart
from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, Part, location, milliseconds, savings
from perfdoctor.api.quantities import Job, Loader, Step

from .._shared.loader_fixes import persistent_workers
from .limits import Limits

_RESTART_SAVED = (0.7, 0.98)
"""Of what starting workers anew costs; a first batch from warm ones remains. A program of 1.3x won back all of it."""


def restarted_workers(job: Job, loader: Loader, step: Step, limits: Limits) -> Finding | None:
    """None where nothing restarts them, or it costs little."""
    start = restart(loader, step)
    if start is None or start.cost_ms / step.step_ms < limits.min_share:
        return None
    cost = Cost(step, start.cost_ms)
    # Where epochs are so short that their starts are part of the usual step, the wait holds them.
    part, ceiling = (Part.INPUT_WAIT, start.in_wait_ms) if start.is_regular else (Part.EPOCH, cost.ms)
    return Finding(
        id="PD03.workers-restarted",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="each epoch restarts its {workers:worker}, which costs {cost_ms} per step ({cost_share})",
        reasoning="an epoch's first batch waits until the workers run and have made it: {anew_ms} for "
        "{batches:batch}; the start method is {start_method}, and nothing keeps the workers from one epoch to the next",
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            milliseconds("anew_ms", loader.iterator_ms, "starting workers, getting the first batch, and ending them"),
            milliseconds("end_ms", loader.iterator_end_ms, "of which ending them"),
            Measurement("batches", loader.batches_per_iterator, "count", "batches per epoch"),
            *cost.measured("that per step", "on top of the steady step" if part is Part.EPOCH else "of the step"),
            Measurement("start_method", loader.start_method or "fork", "text", "start method"),
        ),
        location=location(loader.site),
        fix=persistent_workers(job, loader.made),
        savings=savings(
            step,
            _RESTART_SAVED[0] * ceiling,
            _RESTART_SAVED[1] * ceiling,
            "the measured start of an epoch, of which a warm worker's first batch remains, and its workers' end",
            ceiling=ceiling,
            part=part,
        ),
    )
