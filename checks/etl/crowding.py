"""Workers that keep up, and take the CPUs of training while they do."""

from __future__ import annotations

from perfdoctor.api.causes import lack_of_cpu
from perfdoctor.api.findings import Confidence, Cost, Finding, Measurement, Severity, location, milliseconds, savings
from perfdoctor.api.quantities import Cause, Loader, Missing

from .cheaper import WON_BACK, cheaper_batch
from .waiting import Case, fetch_measurements

_BUSY = 0.5
"""Of the step, from which on a worker that makes a batch is what training waits for. From ..."""
_SOMEWHAT_BUSY = 0.3
"""... on it may be, where it has a CPU for as long as training lacks one (34 ms of 72 a step, and 18: 1.9x without); an
opportunity then. Below, training's own threads are."""


def _is_busiest(case: Case) -> bool:
    """Whether it has workers, and those of no other loader are on CPUs for longer."""
    loaders = case.evidence.loaders
    assert not isinstance(loaders, Missing)
    return case.loader.num_workers > 0 and max(loaders, key=_worker_cpu_ms).id == case.loader.id


def _worker_cpu_ms(loader: Loader) -> float:
    """Per step; nothing without workers."""
    if not loader.num_workers or isinstance(loader.fetch, Missing):
        return 0.0
    return (loader.fetch.getitem_cpu_ms + loader.fetch.collate_cpu_ms) * loader.steady_batches_per_step


def crowding(case: Case) -> tuple[float, float]:
    """Of the step, what training takes longer because the workers have its CPUs, at least and at most, ms: batches that
    cost less give it back. Of several loaders it is told once, of the one whose workers have most.

    At least the training thread's own want of a CPU. At most what its passes take longer than the same passes after the
    last step, with no worker beside them: a thread that waits for another one of its team is on a CPU.
    """
    lack, ops, parts = lack_of_cpu(case.evidence), case.evidence.ops, case.step.parts
    if not _is_busiest(case) or isinstance(lack, Missing) or isinstance(lack.thread_ms, Missing):
        return 0.0, 0.0
    if lack.team_too_large:  # without workers too
        return 0.0, 0.0
    least = min(lack.thread_ms * lack.fraction(Cause.OWN_THREADS), case.step.working_ms)
    if least < case.limits.min_share * case.step.step_ms:
        return 0.0, 0.0
    if isinstance(ops, Missing) or isinstance(ops.batch_replay, Missing):
        return least, least
    alone = ops.batch_replay.times[0][1] / max(1, ops.steps)
    return least, max(least, parts.forward + parts.backward - alone)


def crowded_training(case: Case) -> Finding | None:
    """A loop that hardly waits for its batches, and for CPUs instead. None where workers are not what has them."""
    fetch, (least, most) = case.loader.fetch, crowding(case)
    if isinstance(fetch, Missing) or not least:
        return None
    making = {Cause.TRANSFORM: fetch.getitem_cpu_ms, Cause.COLLATE: fetch.collate_cpu_ms}
    worker_ms = _worker_cpu_ms(case.loader)
    if worker_ms < max(least, _SOMEWHAT_BUSY * case.step.step_ms):
        return None
    is_ill = worker_ms >= _BUSY * case.step.step_ms
    line, cost = fetch.lines[0] if fetch.lines else None, Cost(case.step, most)
    return Finding(
        id="PD03.crowded-training",
        severity=cost.severity(case.limits.min_share, case.limits.error_share) if is_ill else Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message=f"making batches{case.of_loader} takes CPUs from training, which waits {{crowded_ms}} per step for one",
        reasoning="a batch takes {make_ms} to make, {getitem_cpu_ms} of it in the data set on a CPU; the loop hardly "
        "waits for it, but {cpus:usable CPU has|usable CPUs have} no room for that beside training",
        evidence=(
            *case.shared(case.split.wait_ms),
            *case.called(),
            *fetch_measurements(fetch),
            milliseconds("crowded_ms", least, "training without a CPU, per step"),
            *cost.measured("what training takes longer, at most"),
            Measurement("cpus", case.evidence.machine.usable_cpus, "count", "usable CPUs"),
        ),
        location=location(case.loader.site if line is None else line.site),
        about=case.name,
        fix=cheaper_batch(max(making, key=lambda cause: making[cause])),
        savings=savings(
            case.step,
            WON_BACK[0] * least,
            WON_BACK[1] * most,
            "what training waits for a CPU, at least; what its passes take longer than alone, at most; a cheaper way "
            "keeps 10 to 75 % of the batch",
        ),
    )
