"""Data loading: does the loop wait for its batches, and why.

What it looks at
----------------
The time each step waits in the loader's `__next__` (the first batch of an iterator apart), how many batches were
ready on arrival, and, where batches are made, the wall and CPU time of the data set and of `collate_fn`, their
run delay, and what they read. A loader that keeps up is clear, whatever its settings.

Why it costs time
-----------------
A step that waits 14 ms for data and trains for 10 could take 10. The same wait has different causes: too few
workers, storage that is slow to answer, a costly transform or `collate_fn`, batches that are expensive to hand
from process to process, no CPU left to make them, or an iterator that is built again and again. Each has its own
fix, and the wrong one hurts: two workers on trivial data made a loop run at 0.53x.

Example
-------
    loader = DataLoader(images, batch_size=64, num_workers=0)   # 20 ms to load, 10 ms to train
    for batch in loader:                                        # 30 ms a step; with one worker 20, with two 11
        train_step(batch)

How to fix
----------
Follow the finding: more workers where they would keep up, fewer where handing over costs more than making,
batched indexing where single samples are cheap and many, cheaper transforms where no CPU is left, persistent
workers where each epoch starts them anew, pinned memory where copies to the device are pageable.

When it stays silent
--------------------
When the exposed wait is below 5 % of the step. `num_workers=0` with a loader that keeps up is no finding, nor are
the up to 2 ms that any hand-over from a worker takes, nor a loader's own bookkeeping. On a GPU, a wait that is
hidden behind queued kernels is not counted.

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

from perfdoctor.api import (
    HANDOVER_MS,
    Check,
    Confidence,
    Evidence,
    Fetch,
    Finding,
    Fix,
    Job,
    Loader,
    Measurement,
    Missing,
    Outcome,
    Overlap,
    Part,
    Step,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    not_applicable,
    overlap,
    savings,
    severity,
    share,
)

from ._loader_fixes import batched_indexing, fewer_workers, persistent_workers, workers


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Share of the step spent waiting: the field's usual lower bound (TensorBoard's plugin 5 %, TraceML 10 %)."""
    error_share: float = 0.20
    """A judgement: from a fifth of the step on, loading is the first thing to mend."""
    indexing_share: float = 0.10
    """Cheap samples picked one by one are the ordinary way to use a data set of tensors; a note up to here."""
    min_wait_ms: float = 0.05
    """Below, the wait is the loader's own bookkeeping (20 to 40 us a batch) and no setting shortens it."""


_MINE_ITSELF = 0.25
"""From this share outside forward, backward and optimizer on, a loop without loader may be making batches there."""
_STARVED = 0.4
"""Share of making a batch spent runnable without a CPU, from which on CPUs are what is missing."""
_EMPTY = 0.3
"""Below this share of arrivals at an empty queue, batches were ready and handing them over is what takes time."""
_REBUILT = 1.5
"""Batches per iterator up to which the iterator is rebuilt for each of them."""
_CHEAP_SAMPLE_MS = 0.1
"""Up to this time per sample, `__getitem__` is Python overhead rather than work."""
_WORTH = 0.5
"""Workers must win back half of the wait, between best and worst case, or their cost is not worth it."""
_BOOKKEEPING_MS = 0.5
"""What a loader without workers takes per batch beside making it: 0.02 ms on an idle machine, 0.3 on a busy one."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The exposed wait first; only if it costs something, who is to blame for it."""
    step, loaders = evidence.step, evidence.loaders
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(loaders, Missing):
        return cannot_tell(f"loaders were not seen: {loaders}")
    if not loaders:
        return _without_loader(step)
    restarts = [f for loader in loaders if (f := _restarted_workers(evidence.job, loader, step, limits))]
    copies = _pageable_copies(evidence, step, limits)
    wait = _exposed_wait(evidence, step)
    shared = _shared(step, wait, loaders[0])
    findings = [*restarts, *copies]
    # What an epoch's start costs has a finding of its own; the other causes answer for the rest.
    wait -= sum(f.savings.ceiling_ms for f in restarts if f.savings.part is Part.INPUT_WAIT)
    if wait / step.step_ms >= limits.min_share and wait >= limits.min_wait_ms:
        cause = _waiting(evidence, loaders[0], step, wait, limits)
        findings = [cause, *findings] if cause else findings
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


def _shared(step: Step, wait: float, loader: Loader) -> tuple[Measurement, ...]:
    return (
        milliseconds("wait_ms", wait, "wait for data per step"),
        share("wait_share", wait / step.step_ms, "of the step"),
        milliseconds("wait_p95_ms", loader.wait_p95_ms, "wait for one batch, 95th percentile"),
        Measurement("workers", loader.num_workers, "count", "workers"),
    )


def _exposed_wait(evidence: Evidence, step: Step) -> float:
    """The wait that delays the step: on a GPU, what exceeds the kernels still queued."""
    wait = step.parts.input_wait
    if evidence.on_cuda and not isinstance(evidence.ops, Missing) and evidence.ops.device_busy_ms is not None:
        return max(0.0, min(wait, step.step_ms - evidence.ops.device_busy_ms))
    return wait


# -- why the loop waits -----------------------------------------------------------------------------------


def _waiting(evidence: Evidence, loader: Loader, step: Step, wait: float, limits: Limits) -> Finding | None:
    """One finding for the wait of the loader that is waited for longest; None where no setting shortens it."""
    case = _Case(evidence, loader, step, wait, limits)
    if loader.batches_per_iterator <= _REBUILT and loader.iterators > 2:
        return _rebuilt_iterator(case)
    fetch = loader.fetch
    if isinstance(fetch, Missing):
        reason = f"why is not known: {str(fetch).replace('{', '{{').replace('}', '}}')}"
        return _unknown(case, reason)
    model = overlap(evidence, loader, step, fetch)
    if loader.num_workers and not isinstance(loader.empty_share, Missing) and loader.empty_share < _EMPTY:
        # The queue counts a batch as it enters the pipe: workers that are too slow for the loop explain their wait.
        too_slow = fetch.total_ms * loader.steady_batches_per_step / loader.num_workers - model.train_ms
        if too_slow < _WORTH * wait:
            return _transport(case, fetch, model)
    if fetch.total_ms > 0 and fetch.run_delay_ms / fetch.total_ms >= _STARVED:
        return _no_cpu_left(case, fetch)
    made = fetch.total_ms * loader.steady_batches_per_step
    if not loader.num_workers and made < 0.5 * wait:
        return _beside_making(case, fetch, model, made)
    wanted = model.workers()
    if wanted > loader.num_workers and sum(model.saved_with(wanted)) / 2 >= _WORTH * wait:
        return _too_few_workers(case, fetch, model, wanted)
    return _costly_part(case, fetch, model)


def _beside_making(case: _Case, fetch: Fetch, model: Overlap, made: float) -> Finding | None:
    """No workers, and most of the wait is not spent on making batches."""
    if case.wait - made > _BOOKKEEPING_MS * max(1.0, case.loader.steady_batches_per_step):
        return _unknown(
            case,
            "the data set and `collate_fn` take {make_ms} a batch; the rest goes into the sampler, into pinning "
            "memory, or into a few slow batches",
            fetch,
        )
    if made < max(case.limits.min_wait_ms, case.limits.min_share * case.step.step_ms):
        return None
    return _costly_part(replace(case, wait=made), fetch, model)


@dataclass(frozen=True, slots=True)
class _Case:
    """What every finding about the wait needs."""

    evidence: Evidence
    loader: Loader
    step: Step
    wait: float
    limits: Limits

    def finding(
        self,
        name: str,
        message: str,
        reasoning: str,
        fix: Fix,
        *,
        low: float,
        high: float,
        method: str,
        extra: tuple[Measurement, ...] = (),
        confidence: Confidence = Confidence.HIGH,
        lanes: int = 0,
        warning_share: float | None = None,
    ) -> Finding:
        cost_share = self.wait / self.step.step_ms
        warning = self.limits.min_share if warning_share is None else warning_share
        return Finding(
            id=f"PD03.{name}",
            severity=severity(cost_share, warning, self.limits.error_share),
            confidence=confidence,
            message=message,
            reasoning=reasoning,
            evidence=(*_shared(self.step, self.wait, self.loader), *extra),
            location=location(self.loader.site),
            fix=fix,
            savings=savings(
                self.step, Part.INPUT_WAIT, ceiling=self.wait, low=low, high=high, method=method, lanes=lanes
            ),
        )


def _fetch_measurements(fetch: Fetch) -> tuple[Measurement, ...]:
    return (
        milliseconds("make_ms", fetch.total_ms, "making one batch"),
        milliseconds("getitem_cpu_ms", fetch.getitem_cpu_ms, "of which data set, on a CPU"),
        milliseconds("getitem_blocked_ms", fetch.getitem_blocked_ms, "of which data set, blocked"),
        milliseconds("collate_ms", fetch.collate_ms, "of which collate_fn"),
        milliseconds("run_delay_ms", fetch.run_delay_ms, "of which waiting for a CPU"),
    )


def _dominant(fetch: Fetch) -> tuple[str, str]:
    """The largest part of making a batch: its finding name, and what it is called."""
    parts = {
        "storage": (fetch.getitem_blocked_ms, "waiting for storage or the network"),
        "transform": (fetch.getitem_cpu_ms, "computing in the data set's `__getitem__`"),
        "collate": (fetch.collate_ms, "in `collate_fn`"),
    }
    name = max(parts, key=lambda part: parts[part][0])
    return name, parts[name][1]


def _too_few_workers(case: _Case, fetch: Fetch, model: Overlap, wanted: int) -> Finding:
    low, high = model.saved_with(wanted)
    _, doing = _dominant(fetch)
    current = (
        "batches are made in the training process, between the steps"
        if case.loader.num_workers == 0
        else "its {workers} workers cannot keep up"
    )
    return case.finding(
        "too-few-workers",
        "the loop waits {wait_ms} a step for data, {wait_share} of it: " + current,
        f"a batch takes {{make_ms}} to make, mostly {doing}, while training takes {{train_ms}}; "
        f"{{wanted}} {'worker' if wanted == 1 else 'workers'} would make batches during training",
        workers(case.evidence.job, wanted),
        low=low,
        high=high,
        method="overlap model: the step cannot be shorter than training, than making a batch shared among the "
        "workers, or than their CPU time on the usable CPUs; plus 0.3 to 2 ms for handing a batch over",
        lanes=wanted,
        extra=(
            *_fetch_measurements(fetch),
            milliseconds("train_ms", model.train_ms, "the rest of the step"),
            Measurement("wanted", wanted, "count", "workers that would keep up"),
        ),
    )


def _costly_part(case: _Case, fetch: Fetch, model: Overlap) -> Finding:
    """More workers would not do it: name the part that makes batches slow."""
    name, doing = _dominant(fetch)
    samples = case.loader.batch_size or 0
    per_sample = fetch.getitem_ms / samples if samples else fetch.getitem_ms
    extra = _fetch_measurements(fetch)
    if case.loader.num_workers == 0 and samples > 1 and per_sample < _CHEAP_SAMPLE_MS and name != "storage":
        return case.finding(
            "per-sample-indexing",
            "the loop waits {wait_ms} a step for data, {wait_share} of it, to pick {samples} cheap samples one by one",
            "a sample takes only {sample_us} to fetch, so the time goes into Python and collating; handing batches "
            "over from workers would cost more than it saves",
            batched_indexing(),
            low=0.6 * case.wait,
            high=0.95 * case.wait,
            method="indexing a tensor once per batch was measured 2.7 to 15 times faster than once per sample",
            warning_share=case.limits.indexing_share,
            extra=(
                *extra,
                Measurement("samples", samples, "count", "samples per batch"),
                Measurement("sample_us", per_sample * 1000, "us", "fetching one sample"),
            ),
        )
    texts = {
        "storage": (
            "Read less often or from faster storage: pack many samples into one file (WebDataset, Arrow, memory-"
            "mapped arrays), keep the data set in memory, or copy it to a local disk before training.",
            "np.save('samples.npy', samples)\nsamples = np.load('samples.npy', mmap_mode='r')  # read by page",
        ),
        "transform": (
            "Make the transform cheaper, or do it once: cache its result, pre-save the data set, or transform whole "
            "batches instead of single samples.",
            "dataset = [transform(sample) for sample in dataset]  # once, before the first epoch",
        ),
        "collate": (
            "Make `collate_fn` cheaper: stack arrays once with `torch.from_numpy(np.stack(...))` instead of "
            "converting element by element.",
            "def collate(samples):\n    return torch.from_numpy(np.stack(samples))",
        ),
    }
    text, code = texts[name]
    ceiling = {
        "storage": fetch.getitem_blocked_ms,
        "transform": fetch.getitem_cpu_ms,
        "collate": fetch.collate_ms,
    }[name] / max(fetch.total_ms, 1e-9)
    return case.finding(
        name,
        "the loop waits {wait_ms} a step for data, {wait_share} of it: "
        f"making a batch takes {{make_ms}}, mostly {doing}",
        "handing batches over from workers would cost what it saves, so the batch itself must become cheaper"
        if not case.loader.num_workers and model.make_ms < model.handover_ms[1]
        else "more workers would not keep up on {cpus} usable CPUs, so the batch itself must become cheaper",
        Fix(text=text, code=code, risk="None for the results, if the samples stay the same."),
        low=0.25 * ceiling * case.wait,
        high=0.9 * ceiling * case.wait,
        method=f"the share of making a batch that is spent {doing}, of which a cheaper way keeps 10 to 75 %",
        extra=(
            *extra,
            Measurement("cpus", case.evidence.machine.usable_cpus, "count", "usable CPUs"),
        ),
        confidence=Confidence.MEDIUM,
    )


def _no_cpu_left(case: _Case, fetch: Fetch) -> Finding:
    neighbours = case.evidence.host
    others = 0.0 if isinstance(neighbours, Missing) else neighbours.others_cpus
    where = "in its workers" if case.loader.num_workers else "in the training process"
    delayed = min(1.0, fetch.run_delay_ms / max(fetch.total_ms, 1e-9))
    return case.finding(
        "no-cpu-left",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, because making a batch waits for a CPU",
        f"of the {{make_ms}} that a batch takes {where}, {{run_delay_ms}} are spent runnable without a CPU; "
        "{cpus} CPUs are usable and other processes take {others} of them, so more workers would make it worse",
        Fix(
            text="Free CPUs: end or move other processes, give this job a larger quota, or use fewer OpenMP threads "
            "and workers than there are CPUs.",
            code=f"OMP_NUM_THREADS={max(1, int(case.evidence.machine.usable_cpus) - max(1, case.loader.num_workers))} "
            "python train.py",
            language="bash",
        ),
        low=0.5 * delayed * case.wait,
        high=delayed * case.wait,
        method="the share of making a batch that is spent waiting for a CPU",
        extra=(
            *_fetch_measurements(fetch),
            Measurement("cpus", case.evidence.machine.usable_cpus, "count", "usable CPUs"),
            Measurement("others", others, "count", "CPUs taken by other processes"),
        ),
        confidence=Confidence.MEDIUM,
    )


def _transport(case: _Case, fetch: Fetch, model: Overlap) -> Finding | None:
    loader = case.loader
    extra = (
        *_fetch_measurements(fetch),
        milliseconds("transport_ms", loader.transport_ms, "unpickling one batch"),
        Measurement("transport_bytes", loader.transport_bytes, "bytes", "through the pipe per batch"),
        share(
            "empty",
            0.0 if isinstance(loader.empty_share, Missing) else loader.empty_share,
            "arrivals at an empty queue",
        ),
    )
    made_here = fetch.total_ms * loader.steady_batches_per_step
    if made_here < min(case.wait, model.handover_ms[1]):
        # Making the batch costs less than receiving it ever could: the textbook's workers are the problem.
        return case.finding(
            "needless-workers",
            "the loop waits {wait_ms} a step for data, {wait_share} of it, to receive batches that take only "
            "{make_ms} to make",
            "batches were ready when asked for, so the time goes into handing them from process to process",
            fewer_workers(case.evidence.job),
            low=0.5 * (case.wait - made_here),
            high=case.wait - made_here,
            method="the wait, less what making the batch in the training process takes",
            extra=extra,
        )
    if case.wait <= HANDOVER_MS[1] * max(1.0, loader.steady_batches_per_step):
        return None
    return case.finding(
        "transport",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, although batches are ready: handing them over "
        "is what takes time",
        "{transport_bytes} go through a pipe for each batch and unpickling takes {transport_ms}; only tensors travel "
        "through shared memory, and each of them costs about 0.4 ms",
        Fix(
            text="Return few, large tensors from `collate_fn`: stack lists of tensors, and turn NumPy arrays into "
            "tensors, which go through shared memory instead of the pipe.",
            code="def collate(samples):\n    return torch.stack(samples)  # one tensor, not a list",
            risk="Samples of different shapes must be padded first.",
        ),
        low=0.5 * max(0.0, case.wait - model.handover_ms[1]),
        high=max(0.0, case.wait - model.handover_ms[0]),
        method="the wait, less the 0.3 to 2 ms that handing over one tensor takes",
        extra=extra,
    )


def _rebuilt_iterator(case: _Case) -> Finding:
    loader = case.loader
    per_step = loader.iterator_start_ms * loader.steady_batches_per_step
    ceiling = min(case.wait, per_step) or case.wait
    return case.finding(
        "iterator-rebuilt",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, because it builds a new iterator for each batch",
        "{iterators} iterators delivered {batches_per_iterator} batches each; every one shuffles the whole data set "
        "and starts workers, if there are any",
        Fix(
            text="Build the iterator once and draw from it; start again when it is exhausted.",
            code="batches = iter(loader)\nfor step in range(steps):\n    try:\n        batch = next(batches)\n"
            "    except StopIteration:\n        batches = iter(loader)\n        batch = next(batches)",
            risk="Each epoch then sees every sample once, which `next(iter(loader))` did not guarantee.",
        ),
        low=0.5 * ceiling,
        high=0.98 * ceiling,
        method="the measured time of building an iterator and getting its first batch",
        extra=(
            Measurement("iterators", loader.iterators, "count", "iterators"),
            Measurement("batches_per_iterator", loader.batches_per_iterator, "count", "batches per iterator"),
            milliseconds("iterator_start_ms", loader.iterator_start_ms, "iterator and its first batch"),
        ),
    )


def _unknown(case: _Case, reasoning: str, fetch: Fetch | None = None) -> Finding:
    return case.finding(
        "input-wait",
        "the loop waits {wait_ms} a step for data, {wait_share} of it",
        reasoning,
        Fix(text="Time the data set's `__getitem__`, `collate_fn` and the sampler where they run."),
        low=0.0,
        high=case.wait,
        method="a bound: the whole wait",
        extra=_fetch_measurements(fetch) if fetch else (),
        confidence=Confidence.LOW,
    )


# -- beside the steady wait -------------------------------------------------------------------------------


def _restarted_workers(job: Job, loader: Loader, step: Step, limits: Limits) -> Finding | None:
    """Workers that each epoch starts anew. Their start is rarely in the steady step, so it has a part of its own."""
    if not loader.num_workers or loader.persistent_workers or loader.iterators < 2:
        return None
    if loader.batches_per_iterator <= _REBUILT:
        return None
    cost = (loader.iterator_start_ms - loader.wait_ms) / loader.batches_per_iterator * loader.steady_batches_per_step
    cost_share = cost / step.step_ms
    if cost_share < limits.min_share:
        return None
    # Where epochs are so short that their starts are part of the usual step, the wait holds them.
    part = Part.EPOCH if step.irregular_ms >= 0.5 * cost else Part.INPUT_WAIT
    ceiling = cost if part is Part.EPOCH else min(cost, step.parts.input_wait)
    return Finding(
        id="PD03.workers-restarted",
        severity=severity(cost_share, limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="each epoch starts its {workers} workers anew: {start_ms} for {batches} batches, {cost_ms} a step",
        reasoning="an epoch's first batch waits until the workers run and have made it; here {start_method} starts "
        "them, and nothing keeps them from one epoch to the next",
        evidence=(
            Measurement("workers", loader.num_workers, "count", "workers"),
            milliseconds("start_ms", loader.iterator_start_ms, "starting workers and getting the first batch"),
            Measurement("batches", loader.batches_per_iterator, "count", "batches per epoch"),
            milliseconds("cost_ms", cost, "that start per step"),
            share("cost_share", cost_share, "on top of the steady step" if part is Part.EPOCH else "of the step"),
            Measurement("start_method", loader.start_method or "fork", "text", "start method"),
        ),
        location=location(loader.site),
        fix=persistent_workers(job),
        savings=savings(
            step,
            part,
            ceiling=ceiling,
            low=0.5 * ceiling,
            high=0.95 * ceiling,
            method="the measured start of an epoch, of which a warm worker's first batch remains",
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
