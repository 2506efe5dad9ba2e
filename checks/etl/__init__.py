"""Data loading: does the loop wait for its batches, and why.

What it looks at
----------------
The time each step waits in the loader's `__next__` (the first batch of an iterator apart), how many batches were
ready on arrival, and, where batches are made, the wall and CPU time of the data set and of `collate_fn`, their
run delay, what they read, and how long the workers' garbage collections take; the making of one batch line by line,
which tells the line of the data set or of `collate_fn` to look at first. A loader that keeps up is clear, whatever its
settings.

Why it costs time
-----------------
A step that waits 14 ms for data and trains for 10 could take 10. The same wait has different causes: too few
workers, storage that is slow to answer, a costly transform or `collate_fn`, batches that are expensive to hand
from process to process, a slow batch now and then, no CPU left to make them, garbage collections in the workers, or
an iterator that is built again and again. Each has its own fix, and the wrong one hurts: two workers on trivial data
made a loop run at 0.53x.

Example
-------
    loader = DataLoader(images, batch_size=64, num_workers=0)   # 20 ms to load, 10 ms to train
    for batch in loader:                                        # 30 ms a step; with one worker 20, with two 11
        train_step(batch)

How to fix
----------
Follow the finding: more workers where they would keep up, fewer where handing over costs more than making,
batched indexing where single samples are cheap and many, cheaper transforms where no CPU is left, persistent
workers where each epoch starts them anew, a larger `prefetch_factor` where a slow batch now and then holds up the
others, pinned memory where copies to the device are pageable.

When it stays silent
--------------------
When the exposed wait is below 5 % of the step. `num_workers=0` with a loader that keeps up is no finding, nor are
the up to 2 ms that any hand-over from a worker takes, nor a loader's own bookkeeping. On a GPU, a wait that is
hidden behind queued kernels is not counted: it costs at most the time in which the device can have been without work.

Limits
------
Batches that a loop makes itself, without a DataLoader, cannot be told from other code. Storage and network look
alike: both are time off the CPU. Predictions for workers use a model of overlap (the wait of a step cannot be
less than the slowest resource allows), not a trial.

References
----------
- Deeplearning4j, "How to debug performance issues", step 3
- Mohan et al., "Analyzing and mitigating data stalls in DNN training", VLDB 2021: min(F, P, G)
- pytorch/pytorch#10260: per-sample indexing 15 times slower, and 1 or 2 workers slower still
- The profiler plugin of TensorBoard warned from 5 % of the step on, SageMaker's rules from 10 %
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from perfdoctor.api.causes import Bursts, bursts, input_wait, overlap, restart, with_cpus
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import MAKING, WITHOUT_CPU, Cause, Evidence, Fetch, Job, Loader, Missing, Step

from .._shared.loader_fixes import persistent_workers
from .delivery import handover, rebuilt_iterator, uneven_batches
from .making import costly_part, no_cpu_left, too_few_workers, worker_collections
from .waiting import Case, unknown


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step spent waiting: the field's usual lower bound (TensorBoard's plugin 5 %, TraceML 10 %)."""
    error_share: float = 0.20
    """A judgement: from a fifth of the step on, loading is the first thing to mend."""
    indexing_share: float = 0.08
    """Cheap samples picked one by one are the ordinary way to use a data set of tensors; a note up to this saving."""
    min_wait_ms: float = 0.05
    """Below, the wait is the loader's own bookkeeping (20 to 40 us a batch) and no setting shortens it."""


_MINE_ITSELF = 0.25
"""From this share outside forward, backward and optimizer on, a loop without loader may be making batches there."""
_RESTART_SAVED = (0.7, 0.98)
"""Of what starting workers anew costs; a first batch from warm ones remains. A program of 1.3x won back all of it."""
_WORTH = 0.5
"""Workers must win back half of the wait, between best and worst case, or their cost is not worth it."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The exposed wait first; only if it costs something, who is to blame for it."""
    step, loaders, split = evidence.step, evidence.loaders, input_wait(evidence)
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(loaders, Missing) or isinstance(split, Missing):
        return cannot_tell(f"loaders were not seen: {loaders}")
    if not loaders:
        return _without_loader(step)
    case = Case(evidence, loaders[0], step, split, limits)
    shared = case.shared(split.wait_ms)
    # What an epoch's start costs has a finding of its own; the other causes answer for the rest.
    findings = [f for loader in loaders if (f := _restarted_workers(evidence.job, loader, step, limits))]
    findings += _pageable_copies(evidence, step, limits)
    if split.blamed_ms / step.step_ms >= limits.min_share and split.blamed_ms >= limits.min_wait_ms:
        findings = [*_waiting(case), *findings]
    if findings:
        return found(*findings, measurements=shared)
    return clear("the loader keeps up: the loop waits {wait_ms} a step for data ({wait_share})", *shared)


def _without_loader(step: Step) -> Outcome:
    if step.parts.other / step.step_ms < _MINE_ITSELF:
        return not_applicable("the loop draws from no DataLoader, and little time passes outside the model")
    return cannot_tell(
        "the loop draws from no DataLoader, so the making of its batches cannot be told from the other code "
        "outside the model; draw them from a DataLoader to have it measured"
    )


# -- why the loop waits -----------------------------------------------------------------------------------


def _waiting(case: Case) -> list[Finding]:
    """What the wait of the loader that is waited for longest comes from; nothing where no setting shortens it."""
    fetch, blamed = case.loader.fetch, case.split.blamed
    if not isinstance(fetch, Missing) and blamed in WITHOUT_CPU:
        return _for_want_of_cpus(case, fetch)
    finding = _cause(case)
    return [] if finding is None else [finding]


def _cause(case: Case) -> Finding | None:
    """The one cause that is to blame, when batches had a CPU."""
    fetch, blamed = case.loader.fetch, case.split.blamed
    if blamed is Cause.START:
        return rebuilt_iterator(case)
    if isinstance(fetch, Missing):
        return unknown(case, f"why is not known: {str(fetch).replace('{', '{{').replace('}', '}}')}")
    model = overlap(case.evidence, case.loader, case.step, fetch)
    uneven = bursts(case.loader, fetch, model)
    if uneven is not None and _explains(uneven, case.split.blamed_ms) and blamed is not Cause.GC:
        return uneven_batches(case, uneven)
    if blamed is Cause.UNEXPLAINED:
        return unknown(
            case,
            "the data set and `collate_fn` take {make_ms} a batch; the rest goes into the sampler, into pinning "
            "memory, or into a few slow batches",
            fetch,
        )
    if blamed is Cause.HANDOVER:
        return handover(case, fetch, model)
    if blamed is Cause.GC:
        return worker_collections(case, fetch)
    wanted = model.workers()
    if wanted > case.loader.num_workers and sum(model.saved_with(wanted)) / 2 >= _WORTH * case.split.blamed_ms:
        return too_few_workers(case, fetch, model, wanted)
    return costly_part(case, fetch, model)


def _explains(uneven: Bursts, blamed_ms: float) -> bool:
    """Whether the wait comes from slow batches in between, and working further ahead would take half of it away."""
    return uneven.now_ms >= _WORTH * blamed_ms and uneven.ahead_ms <= (1 - _WORTH) * uneven.now_ms


def _for_want_of_cpus(case: Case, fetch: Fetch) -> list[Finding]:
    """The lack of CPUs, and beside it what is wrong with the loading itself: that would stay on a quiet machine."""
    quiet = with_cpus(case.evidence)
    step, loaders, split = quiet.step, quiet.loaders, input_wait(quiet)
    if isinstance(step, Missing) or isinstance(loaders, Missing) or isinstance(split, Missing):
        return [no_cpu_left(case, fetch, 0.0)]
    alone = replace(case, evidence=quiet, loader=loaders[0], step=step, split=split)
    remains = split.blamed in (*MAKING, Cause.GC) and split.blamed_ms >= case.limits.min_share * step.step_ms
    own = _cause(alone) if remains else None
    if own is None:
        return [no_cpu_left(case, fetch, 0.0)]
    share_of_step = own.savings.ceiling_ms / case.step.step_ms
    own = replace(
        own,
        message=own.message.replace("the loop waits", "with a CPU for every batch the loop would still wait", 1),
        reasoning=f"this is what would stay on a quiet machine: {own.reasoning}",
        confidence=Confidence.MEDIUM,
        savings=replace(own.savings, share=share_of_step),
    )
    return [no_cpu_left(case, fetch, min(case.wait, split.blamed_ms)), own]


# -- beside the steady wait -------------------------------------------------------------------------------


def _restarted_workers(job: Job, loader: Loader, step: Step, limits: Limits) -> Finding | None:
    """Workers that each epoch starts anew. Their start is rarely in the steady step, so it has a part of its own."""
    start = restart(loader, step)
    if start is None or start.cost_ms / step.step_ms < limits.min_share:
        return None
    cost, cost_share = start.cost_ms, start.cost_ms / step.step_ms
    # Where epochs are so short that their starts are part of the usual step, the wait holds them.
    part, ceiling = (Part.INPUT_WAIT, start.in_wait_ms) if start.is_regular else (Part.EPOCH, cost)
    return Finding(
        id="PD03.workers-restarted",
        severity=severity(cost_share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="each epoch starts its {workers:worker} anew: {anew_ms} for {batches:batch}, {cost_ms} a step",
        reasoning="an epoch's first batch waits until the workers run and have made it; here {start_method} starts "
        "them, and nothing keeps them from one epoch to the next",
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            milliseconds("anew_ms", loader.iterator_ms, "starting workers, getting the first batch, and ending them"),
            milliseconds("end_ms", loader.iterator_end_ms, "of which ending them"),
            Measurement("batches", loader.batches_per_iterator, "count", "batches per epoch"),
            milliseconds("cost_ms", cost, "that per step"),
            share("cost_share", cost_share, "on top of the steady step" if part is Part.EPOCH else "of the step"),
            Measurement("start_method", loader.start_method or "fork", "text", "start method"),
        ),
        location=location(loader.site),
        fix=persistent_workers(job, loader.made),
        savings=savings(
            step,
            part,
            ceiling=ceiling,
            low=_RESTART_SAVED[0] * ceiling,
            high=_RESTART_SAVED[1] * ceiling,
            method="the measured start of an epoch, of which a warm worker's first batch remains, and its workers' end",
        ),
    )


def _pageable_copies(evidence: Evidence, step: Step, limits: Limits) -> list[Finding]:
    ops = evidence.ops
    if isinstance(ops, Missing) or not evidence.on_cuda:
        return []
    cost_share = ops.pageable_copies_ms / step.step_ms
    if cost_share < limits.min_share:
        return []
    loader = evidence.loaders[0] if not isinstance(evidence.loaders, Missing) else None
    return [
        Finding(
            id="PD03.pageable-copies",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="copies from pageable memory to the device take {copies_ms} a step, {copies_share} of it",
            reasoning="a copy from pageable memory goes through a staging buffer and blocks the loop, whatever "
            "`non_blocking` says; one from pinned memory runs beside the kernels",
            evidence=(
                milliseconds("copies_ms", ops.pageable_copies_ms, "pageable copies per step"),
                share("copies_share", cost_share, "of the step"),
            ),
            location=location(loader.site) if loader else None,
            fix=Fix(
                text="Let the loader pin its batches, and copy them without blocking.",
                code="loader = DataLoader(dataset, ..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
                risk="Pinned memory cannot be swapped out; pin batches, not data sets.",
                remedies=("etl.pin-memory",),
            ),
            savings=savings(
                step,
                Part.OTHER,
                ceiling=ops.pageable_copies_ms,
                low=0.4 * ops.pageable_copies_ms,
                high=0.95 * ops.pageable_copies_ms,
                method="measured copy time; pinned copies are 2 to 4 times faster and overlap with kernels",
            ),
        )
    ]


CHECK = Check(code="PD03", name="etl", title="data loading", limits=Limits(), examine=examine)
