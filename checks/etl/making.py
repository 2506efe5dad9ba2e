"""Batches that take long to make: too few workers, a costly part, no CPU, or collections in the workers."""

from __future__ import annotations

from dataclasses import replace

from perfdoctor.api.causes import Overlap, are_bound
from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location, milliseconds, share
from perfdoctor.api.quantities import WITHOUT_CPU, Cause, CodeLine, Fetch, Missing

from .._shared.loader_fixes import batched_indexing, workers
from .waiting import Case, fetch_measurements

_WITHOUT_CALL = (0.85, 1.0)
"""Of collections that a line asks for: up to 15 % come back, as Python's own."""
_CALMER = (0.5, 0.95)
"""Of collections that Python starts, saved by thresholds of 50,000."""
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
        "End or move the other processes, or give each job its own CPUs.",
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
        "Free CPUs: end or move other processes, or give this job a larger quota.",
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


def _doing(case: Case) -> str:
    words = _DOING[case.split.blamed]
    return words.replace("__getitem__", "__iter__") if case.loader.iterable else words


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
            *fetch_measurements(fetch),
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
    extra = fetch_measurements(fetch)
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
        _fewer_threads(case, remedy),
        ceiling=case.wait - remaining,
        low=0.5 * min(lost, case.wait - remaining),
        high=min(lost, case.wait - remaining),
        method="the share of making a batch that is spent waiting for a CPU",
        extra=(
            *fetch_measurements(fetch),
            Measurement("cpus", machine.usable_cpus, "count", "usable CPUs"),
            *(
                ()
                if isinstance(host, Missing)
                else (Measurement("others", host.others_cpus, "count", "CPUs taken by other processes"),)
            ),
        ),
        confidence=Confidence.MEDIUM,
    )


def _fewer_threads(case: Case, remedy: str) -> Fix:
    """Where others have the CPUs, fewer threads and workers are advised only to a job that has some to spare."""
    threads, workers = case.evidence.threads, case.loader.num_workers
    fitting = max(1, int(case.evidence.machine.usable_cpus) - max(1, workers))
    own = case.split.blamed in (Cause.OWN_THREADS, Cause.QUOTA)
    spare = own or isinstance(threads, Missing) or threads.intra_op > fitting
    fewer = "" if own else " and ".join(["OpenMP threads"] * spare + ["workers"] * (workers > 1))
    return Fix(
        text=remedy + (f" Until then use fewer {fewer}." if fewer else ""),
        code=f"OMP_NUM_THREADS={fitting} python train.py" if spare else "",
        language="bash",
        remedies=("etl.worker-threads=1",) if workers else (),
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
        extra=(*fetch_measurements(fetch), milliseconds("gc_ms", fetch.gc_ms, "collections while a batch is made")),
    )
    return replace(finding, location=location(fetch.gc_line)) if fetch.gc_line is not None else finding
