"""Findings about the wait for data, in words: one for each cause that the shared evidence may blame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from perfdoctor.api import (
    HANDOVER_MS,
    WITHOUT_CPU,
    Bursts,
    Cause,
    CodeLine,
    Confidence,
    Evidence,
    Fetch,
    Finding,
    Fix,
    InputWait,
    Loader,
    Measurement,
    Missing,
    Overlap,
    Part,
    Step,
    are_bound,
    location,
    milliseconds,
    savings,
    severity,
    share,
)

from ._limits import CostLimits
from ._loader_fixes import batched_indexing, fewer_workers, prefetch, workers


class WaitLimits(CostLimits, Protocol):
    """The thresholds that concern the wait."""

    @property
    def indexing_share(self) -> float: ...


_COLLATE_IN_PROCESS = 0.3
"""Of what `collate_fn` takes in a worker, where it puts the batch into shared memory: 0.15 against 0.5 ms, measured."""
_WITHOUT_CALL = (0.85, 1.0)
"""Of collections that a line asks for: up to 15 % come back, as Python's own."""
_CALMER = (0.5, 0.95)
"""Of collections that Python starts, saved by thresholds of 50,000."""
_REBUILDING = 0.9
"""A judgement: what a first batch finds cold in caches and memory may be cold for the next one too."""
_REPEATS = 0.5
"""Of the saving that the played queue shows: slow batches may come closer together than they did."""
_TELLING = 0.25
"""A line that takes a quarter of making a batch is worth a look; below, the time is all over the place."""
_CHEAP_SAMPLE_MS = 0.1
"""Up to this time per sample, `__getitem__` is Python overhead rather than work."""
_TORCH_COLLATE = ("", "default_collate", "default_convert")
_DOING = {
    Cause.STORAGE: "waiting for storage or the network",
    Cause.TRANSFORM: "computing in the data set's `__getitem__`",
    Cause.COLLATE: "in `collate_fn`",
}
_TAKEN = {
    Cause.NEIGHBOURS: (
        "{cpus:CPU is|CPUs are} usable, none is idle, and other processes take {others} of them",
        "End or move the other processes, or give each job its own CPUs; until then use fewer OpenMP threads and "
        "workers.",
    ),
    Cause.OWN_THREADS: (
        "{cpus:CPU is|CPUs are} usable and other processes take no more than {others} of them: the job's own threads "
        "and workers wait for each other",
        "Use fewer OpenMP threads and workers than there are CPUs, or give this job more of them.",
    ),
    Cause.QUOTA: (
        "the control group's quota of {cpus} CPUs stops the job",
        "Give the container a larger quota, or use fewer OpenMP threads and workers than it allows CPUs.",
    ),
    Cause.NO_CPU: (
        "{cpus} CPUs are usable, and who had them is not known",
        "Free CPUs: end or move other processes, give this job a larger quota, or use fewer OpenMP threads and "
        "workers than there are CPUs.",
    ),
}
"""Who had the CPUs, and what to do about it."""

_CHEAPER = {
    Cause.STORAGE: (
        "Read less often or from faster storage: pack many samples into one file (WebDataset, Arrow, memory-"
        "mapped arrays), keep the data set in memory, or copy it to a local disk before training.",
        "np.save('samples.npy', samples)\nsamples = np.load('samples.npy', mmap_mode='r')  # read by page",
    ),
    Cause.TRANSFORM: (
        "Make the transform cheaper, or do it once: cache its result, pre-save the data set, or transform whole "
        "batches instead of single samples.",
        "dataset = [transform(sample) for sample in dataset]  # once, before the first epoch",
    ),
    Cause.COLLATE: (
        "Make `collate_fn` cheaper: stack arrays once with `torch.from_numpy(np.stack(...))` instead of "
        "converting element by element.",
        "def collate(samples):\n    return torch.from_numpy(np.stack(samples))",
    ),
}
"""How to make a batch cheaper: words and code."""


@dataclass(frozen=True, slots=True)
class Case:
    """What every finding about the wait needs."""

    evidence: Evidence
    loader: Loader
    step: Step
    split: InputWait
    limits: WaitLimits

    @property
    def wait(self) -> float:
        """What the finding is about."""
        return self.split.blamed_ms

    def part(self, *causes: Cause) -> float:
        """Of the wait: by their share of the making; what it takes longer than that comes in bursts of the same."""
        return self.wait * self.split.ms(*causes) / self.split.making_ms if self.split.making_ms > 0 else 0.0

    def shared(self, wait: float) -> tuple[Measurement, ...]:
        return (
            milliseconds("wait_ms", wait, "wait for data per step"),
            share("wait_share", wait / self.step.step_ms, "of the step"),
            milliseconds("wait_p95_ms", self.loader.wait_p95_ms, "wait for one batch, 95th percentile"),
            Measurement("workers", self.loader.num_workers, "count", "workers"),
        )

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
        ceiling: float | None = None,
    ) -> Finding:
        # By what a fix would give, not by what the wait costs: some of it no fix takes away.
        saved_share = (low + high) / 2 / self.step.step_ms
        warning = self.limits.min_share if warning_share is None else warning_share
        return Finding(
            id=f"PD03.{name}",
            severity=severity(saved_share, warning, self.limits.error_share),
            confidence=confidence,
            message=message,
            reasoning=reasoning,
            evidence=(*self.shared(self.wait), *extra),
            location=location(self.loader.site),
            fix=fix,
            savings=savings(
                self.step,
                Part.INPUT_WAIT,
                ceiling=self.wait if ceiling is None else ceiling,
                low=low,
                high=high,
                method=method,
                lanes=lanes,
            ),
        )


def _doing(case: Case) -> str:
    words = _DOING[case.split.blamed]
    return words.replace("__getitem__", "__iter__") if case.loader.iterable else words


def _fetch_measurements(fetch: Fetch) -> tuple[Measurement, ...]:
    return (
        milliseconds("make_ms", fetch.total_ms, "making one batch"),
        milliseconds("getitem_cpu_ms", fetch.getitem_cpu_ms, "of which data set, on a CPU"),
        milliseconds("getitem_blocked_ms", fetch.getitem_blocked_ms, "of which data set, blocked"),
        milliseconds("collate_ms", fetch.collate_ms, "of which collate_fn"),
        milliseconds("run_delay_ms", fetch.run_delay_ms, "of which waiting for a CPU"),
    )


def _hottest(fetch: Fetch) -> CodeLine | None:
    """The line of the data set or `collate_fn` to look at first."""
    line = fetch.lines[0] if fetch.lines else None
    return line if line is not None and line.share >= _TELLING else None


def _told(fetch: Fetch) -> tuple[str, tuple[Measurement, ...]]:
    """Where a batch is made slowly: a clause, and its measurements."""
    line = _hottest(fetch)
    if line is None:
        return "", ()
    return (
        "; {hottest_share} of the making passes at {hottest}",
        (
            Measurement("hottest", str(line.site), "text", "hottest line of making a batch"),
            share("hottest_share", line.share, "of the making, on that line"),
        ),
    )


def _is_a_librarys(case: Case, fetch: Fetch) -> bool:
    """Whether batches are made in the training process, and by no line of the user's."""
    return not case.loader.num_workers and not isinstance(case.evidence.code_lines, Missing) and not fetch.lines


def too_few_workers(case: Case, fetch: Fetch, model: Overlap, wanted: int) -> Finding:
    low, high = model.saved_with(wanted)
    doing = _doing(case)
    current = (
        "batches are made in the training process, between the steps"
        if case.loader.num_workers == 0
        else "its {workers:worker} cannot keep up"
    )
    told, hottest = _told(fetch)
    return case.finding(
        "too-few-workers",
        "the loop waits {wait_ms} a step for data, {wait_share} of it: " + current,
        f"a batch takes {{make_ms}} to make, mostly {doing}, while training takes {{train_ms}}; "
        f"{{wanted:worker}} would make batches during training{told}",
        _or_cheaper(workers(case.evidence.job, wanted), case, fetch),
        low=low,
        high=high,
        method="overlap model: the step cannot be shorter than training, than making a batch shared among the "
        "workers, or than their CPU time on the usable CPUs; plus 0.3 to 2 ms for handing a batch over",
        lanes=wanted,
        extra=(
            *_fetch_measurements(fetch),
            milliseconds("train_ms", model.train_ms, "the rest of the step"),
            Measurement("wanted", wanted, "count", "workers that would keep up"),
            *hottest,
        ),
    )


def _or_cheaper(fix: Fix, case: Case, fetch: Fetch) -> Fix:
    """Workers hide what a batch costs; the other way is to make it cost less."""
    if _picks_samples_singly(case, fetch):
        return replace(fix, text=f"{fix.text} Or pick the whole batch with one index, which needs no worker.")
    way, _ = _CHEAPER[case.split.blamed]
    return replace(fix, text=f"{fix.text} Or make the batch cheaper: {way[0].lower()}{way[1:]}")


def _picks_samples_singly(case: Case, fetch: Fetch) -> bool:
    """Whether a batch is many cheap samples, so that Python's part of each is most of it."""
    samples = case.loader.batch_size or 0
    if case.loader.iterable:  # there is nothing to index
        return False
    # A function of the job's own that takes most of the time does something: look there.
    if case.split.blamed is Cause.COLLATE and case.loader.collate not in _TORCH_COLLATE:
        return False
    cheap = samples > 1 and fetch.getitem_ms / samples < _CHEAP_SAMPLE_MS
    return case.loader.num_workers == 0 and cheap and case.split.blamed is not Cause.STORAGE


def costly_part(case: Case, fetch: Fetch, model: Overlap) -> Finding:
    """More workers would not do it: name the part that makes batches slow."""
    blamed = case.split.blamed
    doing = _doing(case)
    extra = _fetch_measurements(fetch)
    told, hottest = _told(fetch)
    if _picks_samples_singly(case, fetch):
        samples = case.loader.batch_size or 1
        return case.finding(
            "per-sample-indexing",
            "the loop waits {wait_ms} a step for data, {wait_share} of it, to pick {samples:cheap sample} one by one",
            "a sample takes only {sample_us} to fetch, so the time goes into Python and collating; handing batches "
            f"over from workers would cost more than it saves{told}",
            batched_indexing(),
            low=0.6 * case.wait,
            high=0.95 * case.wait,
            method="indexing a tensor once per batch was measured 2.7 to 15 times faster than once per sample",
            warning_share=case.limits.indexing_share,
            extra=(
                *extra,
                Measurement("samples", samples, "count", "samples per batch"),
                Measurement("sample_us", fetch.getitem_ms / samples * 1000, "us", "fetching one sample"),
                *hottest,
            ),
        )
    text, code = _CHEAPER[blamed]
    line = _hottest(fetch)
    finding = case.finding(
        blamed.value,
        "the loop waits {wait_ms} a step for data, {wait_share} of it: "
        f"making a batch takes {{make_ms}}, mostly {doing}",
        (
            "handing batches over from workers would cost what it saves, so the batch itself must become cheaper"
            if not case.loader.num_workers and model.make_ms < model.handover_ms[1]
            else "more workers would not keep up on {cpus:usable CPU}, so the batch itself must become cheaper"
        )
        + told,
        # A bound: what no change to the making of batches can exceed.
        Fix(
            text=text,
            code=code,
            risk="None for the results, if the samples stay the same.",
            remedies=("etl.replay",),
        ),
        low=0.25 * case.part(blamed),
        high=0.9 * case.part(blamed),
        method=f"the share of making a batch that is spent {doing}, of which a cheaper way keeps 10 to 75 %",
        extra=(
            *extra,
            Measurement("cpus", case.evidence.machine.usable_cpus, "count", "usable CPUs"),
            *hottest,
        ),
        confidence=Confidence.MEDIUM,
        # Where no line of the user's makes the batch there is little to make cheaper.
        warning_share=case.limits.error_share if _is_a_librarys(case, fetch) else None,
    )
    # What must change is what makes the batch, not the line that makes the loader.
    return finding if line is None else replace(finding, location=location(line.site))


def no_cpu_left(case: Case, fetch: Fetch, remaining: float) -> Finding:
    """Neither more workers nor a cheaper batch: CPUs. `remaining`: of the wait, what would be there with them, ms."""
    where = "in its workers" if case.loader.num_workers else "in the training process"
    machine, host, lost = case.evidence.machine, case.evidence.host, case.part(*WITHOUT_CPU)
    who, remedy = _TAKEN[case.split.blamed]
    if case.split.blamed is Cause.OWN_THREADS and are_bound(case.evidence, case.loader):
        who = "its workers are bound to fewer CPUs than the job may use"
    return case.finding(
        "no-cpu-left",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, because making a batch waits for a CPU",
        f"of the {{make_ms}} that a batch takes {where}, {{run_delay_ms}} are spent runnable without a CPU; {who}, so "
        "more workers would make it worse",
        Fix(
            text=remedy,
            code=f"OMP_NUM_THREADS={max(1, int(machine.usable_cpus) - max(1, case.loader.num_workers))} "
            "python train.py",
            language="bash",
            remedies=("etl.worker-threads=1",) if case.loader.num_workers else (),
        ),
        ceiling=case.wait - remaining,
        low=0.5 * min(lost, case.wait - remaining),
        high=min(lost, case.wait - remaining),
        method="the share of making a batch that is spent waiting for a CPU",
        extra=(
            *_fetch_measurements(fetch),
            Measurement("cpus", machine.usable_cpus, "count", "usable CPUs"),
            *(
                ()
                if isinstance(host, Missing)
                else (Measurement("others", host.others_cpus, "count", "CPUs taken by other processes"),)
            ),
        ),
        confidence=Confidence.MEDIUM,
    )


def worker_collections(case: Case, fetch: Fetch) -> Finding:
    """Neither more workers nor a cheaper data set: Python's collector runs inside the workers."""
    loader, asked = case.loader, fetch.gc_line is not None
    spared = min(case.wait, fetch.gc_ms * loader.steady_batches_per_step / max(1, loader.num_workers))
    least, most = _WITHOUT_CALL if asked else _CALMER
    finding = case.finding(
        "worker-collections",
        "the loop waits {wait_ms} a step for data, {wait_share} of it: making a batch takes {make_ms}, of which "
        "garbage collections in the workers are {gc_ms}",
        "a line that runs in the workers calls `gc.collect()`, which walks every object that Python tracks; tensors "
        "do not need it"
        if asked
        else "the data set makes so many containers (lists, dicts, objects) that Python keeps looking for cycles among "
        "them, and a worker walks all that it inherited from the training process each time",
        Fix(
            text="Take the call out of the data set and `collate_fn`."
            if asked
            else "Set aside what the workers inherit, and let their collector run less often.",
            code="def collate(samples):\n    return torch.stack(samples)  # without gc.collect()"
            if asked
            else "def calm(worker_id):\n    gc.freeze()\n    gc.set_threshold(50_000, 50, 100)\n\n"
            "loader = DataLoader(dataset, ..., worker_init_fn=calm)",
            risk="Reference cycles in the workers, and the memory they hold, live longer.",
        ),
        low=least * min(spared, case.part(Cause.GC)),
        high=most * spared,
        method="the measured pauses, shared among the workers; a call that is gone leaves at most 15 % to Python's own "
        "collector"
        if asked
        else "the measured pauses, shared among the workers, of which thresholds of 50,000 save half or more",
        extra=(*_fetch_measurements(fetch), milliseconds("gc_ms", fetch.gc_ms, "collections while a batch is made")),
    )
    return replace(finding, location=location(fetch.gc_line)) if fetch.gc_line is not None else finding


def handover(case: Case, fetch: Fetch, model: Overlap) -> Finding | None:
    """Batches that were ready; None for what any hand-over takes."""
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
    made_here = (fetch.total_ms - fetch.run_delay_ms) * loader.steady_batches_per_step
    collate = min(fetch.collate_cpu_ms * loader.steady_batches_per_step, made_here)
    if made_here < min(case.wait, model.handover_ms[1]):
        # Making the batch costs less than receiving it ever could: the textbook's workers are the problem.
        return case.finding(
            "needless-workers",
            "the loop waits {wait_ms} a step for data, {wait_share} of it, to receive batches that take only "
            "{make_ms} to make",
            "batches were ready when asked for, so the time goes into handing them from process to process",
            fewer_workers(case.evidence.job),
            low=case.wait - made_here,
            high=case.wait - made_here + collate * (1 - _COLLATE_IN_PROCESS),
            method="the wait, less what making the batch in the training process takes: no more than in a worker, and "
            "as little as 30 % of its `collate_fn`, which there also makes shared memory",
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


def uneven_batches(case: Case, uneven: Bursts) -> Finding:
    """Workers that keep up on average, and a slow batch now and then that all others queue up behind."""
    part = 1 - uneven.ahead_ms / uneven.now_ms
    return case.finding(
        "uneven-batches",
        "the loop waits {wait_ms} a step for data, {wait_share} of it: its {workers:worker} keep up on average, but "
        "one batch in 20 takes {slow_ms} and more, while most take about {typical_ms}",
        "the loop takes batches in order, so it waits for a slow one although later ones are ready; with "
        "{prefetch:batch} ahead for each worker the wait would be {ahead_ms}",
        prefetch(case.evidence.job, uneven.factor),
        low=_REPEATS * part * case.wait,
        high=part * case.wait,
        method="the loader's queue played through with the times that its batches took, with {now:batch} ahead for "
        "each worker and with {prefetch}",
        extra=(
            milliseconds("slow_ms", uneven.slow_ms, "making a batch, 95th percentile"),
            milliseconds("typical_ms", uneven.typical_ms, "making a batch, median"),
            milliseconds("now_ms", uneven.now_ms, "wait per step, played through as it is"),
            milliseconds("ahead_ms", uneven.ahead_ms, "wait per step, played through with more ahead"),
            Measurement("now", case.loader.prefetch_factor or 2, "count", "batches ahead for each worker"),
            Measurement("prefetch", uneven.factor, "count", "batches ahead that would do"),
        ),
        confidence=Confidence.MEDIUM,
    )


def rebuilt_iterator(case: Case) -> Finding:
    loader = case.loader
    per_step = loader.iterator_start_ms * loader.steady_batches_per_step
    ceiling = min(case.wait, per_step) or case.wait
    stays = HANDOVER_MS[0] * loader.steady_batches_per_step
    if not loader.num_workers and not isinstance(loader.fetch, Missing):
        stays = loader.fetch.total_ms * loader.steady_batches_per_step
    saved = max(0.0, ceiling - stays)
    finding = case.finding(
        "iterator-rebuilt",
        "the loop waits {wait_ms} a step for data, {wait_share} of it, because it builds a new iterator for each batch",
        "{iterators:iterator} delivered {batches_per_iterator:batch} each; every one shuffles the whole data set "
        "and starts workers, if there are any",
        Fix(
            text="Build the iterator once and draw from it; start again when it is exhausted.",
            code="batches = iter(loader)\nfor step in range(steps):\n    try:\n        batch = next(batches)\n"
            "    except StopIteration:\n        batches = iter(loader)\n        batch = next(batches)",
            risk="Each epoch then sees every sample once, which `next(iter(loader))` did not guarantee.",
        ),
        low=_REBUILDING * saved,
        high=saved,
        method="the measured time of building an iterator and getting its first batch, less making that batch; what "
        "freeing the old one takes comes on top",
        extra=(
            Measurement("iterators", loader.iterators, "count", "iterators"),
            Measurement("batches_per_iterator", loader.batches_per_iterator, "count", "batches per iterator"),
            milliseconds("iterator_start_ms", loader.iterator_start_ms, "iterator and its first batch"),
        ),
    )
    return replace(finding, location=location(loader.iterated_at))


def unknown(case: Case, reasoning: str, fetch: Fetch | None = None) -> Finding:
    return case.finding(
        "input-wait",
        "the loop waits {wait_ms} a step for data, {wait_share} of it",
        reasoning,
        Fix(
            text="Time the data set's `__getitem__`, `collate_fn` and the sampler where they run.",
            remedies=("etl.replay",),
        ),
        low=0.0,
        high=case.wait,
        method="a bound: the whole wait",
        extra=_fetch_measurements(fetch) if fetch else (),
        confidence=Confidence.LOW,
    )
