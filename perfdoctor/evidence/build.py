"""From a recording to evidence: one object per rank, with workers counted to theirs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..recording import ray
from ..recording.host import HostRecording
from ..recording.machine import Machine
from ..recording.model import ProcessRecording, Recording
from ..recording.nodes import Node
from ..recording.nodes import ranks as ranks_of
from . import (
    anatomy,
    checkpoints,
    communication,
    compilation,
    concurrency,
    device,
    epoch_starts,
    evaluation,
    garbage,
    growing_work,
    job,
    lines,
    loading,
    logged,
    memory,
    modes,
    profiled,
    settings,
    steady,
    trend,
    windows,
)
from .host import build_host, build_monitor_cpus
from .judged import choose
from .model import (
    NO_SPARK,
    Communication,
    Evidence,
    Host,
    Job,
    JobAnatomy,
    Missing,
    OwnCost,
    ProbeFault,
    RunEvidence,
    SparkResources,
    Step,
)
from .shared_machine import host_of
from .steady import Selection, untouched


@dataclass(frozen=True, slots=True)
class _Run:
    """What all ranks of a node share."""

    recording: Recording
    machine: Machine
    host: HostRecording
    job: Job
    together: Communication | Missing


@dataclass(frozen=True, slots=True)
class _Rank:
    """What the builders of one rank's evidence may look at."""

    run: _Run
    process: ProcessRecording
    workers: Sequence[ProcessRecording]
    step: Step | Missing
    anatomy: JobAnatomy | Missing


_BUILDERS: Mapping[str, Callable[[_Rank], object]] = {
    "step": lambda rank: rank.step,
    "ops": lambda rank: windows.profile(rank.process, rank.step),
    "layers": lambda rank: windows.layers(rank.process, rank.step),
    "discarded_gradients": lambda rank: windows.discarded(rank.process, rank.step),
    "repeated_work": lambda rank: windows.repeated(rank.process, rank.step),
    "metrics": lambda rank: windows.aside(rank.process, rank.step, lambda seen: seen.metrics),
    "unused_work": lambda rank: windows.aside(rank.process, rank.step, lambda seen: seen.unused),
    "weighted": lambda rank: windows.weighted(rank.process, rank.step),
    "of_samples": lambda rank: windows.of_samples(rank.process, rank.step),
    "equivalents": lambda rank: windows.equivalents(rank.process, rank.step),
    "derivatives": lambda rank: windows.derivatives(rank.process),
    "passes_again": lambda rank: windows.passes_again(rank.process, rank.step),
    "subnormals": lambda rank: windows.subnormals(rank.process, rank.step),
    "lock_waits": lambda rank: windows.lock_waits(rank.process),
    "library_use": lambda rank: windows.library_use(rank.process),
    "call_sites": lambda rank: lines.call_sites(rank.process),
    "hot_lines": lambda rank: lines.hot_lines(rank.process, rank.step),
    "code_lines": lambda rank: lines.code_lines(rank.process, rank.step),
    "same_results": lambda rank: lines.same_results(rank.process, rank.step),
    "index_use": lambda rank: windows.index_use(rank.process),
    "counters": lambda rank: windows.counters(rank.process),
    "precision": lambda rank: settings.precision(rank.process),
    "threads": lambda rank: settings.threads(rank.process, rank.run.recording.facts.environment),
    "backend": lambda rank: settings.backend(rank.process, rank.run.recording.vector_extension_timings),
    "cudnn": lambda rank: settings.cudnn(rank.process),
    "deterministic": lambda rank: settings.deterministic(rank.process),
    "allocator": lambda rank: rank.run.recording.allocator_timing,
    "tracing": lambda rank: windows.tracing(rank.process),
    "traced_calls": lambda rank: windows.traced_calls(rank.process),
    "modes": lambda rank: modes.build(rank.process),
    "debugging": lambda rank: settings.debugging(rank.process),
    "communication": lambda rank: rank.run.together,
    "spark": lambda rank: _spark(rank.run.recording),
    "anatomy": lambda rank: rank.anatomy,
    "evaluations": lambda rank: evaluation.build(rank.process, rank.anatomy),
    "decoding": lambda rank: evaluation.decoding(rank.process),
    "unloaded_passes": lambda rank: evaluation.unloaded(rank.process),
}
"""Fields of `Evidence` -> what they are made of."""

_OF_STEADY_STEPS: Mapping[str, Callable[[_Rank, Selection], object]] = {
    "loaders": lambda rank, steps: loading.build(rank.process, rank.workers, steps),
    "gc": lambda rank, steps: garbage.build(rank.process, steps),
    "checkpoints": lambda rank, steps: checkpoints.build(rank.process, steps, rank.step),
    "growing_work": lambda rank, steps: growing_work.build(rank.process, steps, rank.step),
    "growth": lambda rank, steps: trend.build(rank.process, rank.workers, steps, rank.run.host.samples),
    "memory": lambda rank, steps: memory.host(rank.process, steps),
    "cuda_memory": lambda rank, steps: memory.cuda(rank.process, steps),
    "concurrency": lambda rank, steps: concurrency.build(rank.process, steps),
    "compilation": lambda rank, steps: compilation.build(rank.process, steps),
    "schedules": lambda rank, steps: memory.calls(rank.process, steps, "schedule"),
    "statistics_updates": lambda rank, steps: memory.calls(rank.process, steps, "update_bn"),
    "processes": lambda rank, steps: memory.calls(rank.process, steps, "process"),
    "programs": lambda rank, steps: memory.calls(rank.process, steps, "program"),
    "messages": lambda rank, steps: memory.calls(rank.process, steps, "message"),
    "searched_modules": lambda rank, steps: memory.calls_of_each_step(rank.process, steps, "debug.frame"),
    "profiled": lambda rank, steps: profiled.build(rank.process, steps),
    "device": lambda rank, steps: device.timeline(rank.process, steps, rank.step),
    "host": lambda rank, steps: _host(rank.run, steps),
    "logging": lambda rank, steps: logged.build(rank.process, steps),
    "epoch_starts": lambda rank, steps: epoch_starts.build(rank.process, steps, rank.step),
    "own_cost": lambda rank, steps: _own_cost(rank, steps),
}
"""Those that need the steady steps: without any, they are missing for the same reason."""


def build(recording: Recording, machine: Machine, host: HostRecording) -> RunEvidence:
    """Evidence of a job that one launcher recorded."""
    return build_job((Node(recording, machine, host),))


def build_job(nodes: Sequence[Node]) -> RunEvidence:
    """Evidence of all ranks, of many of those that are judged. A run without a rank yields one, in which everything
    measured is `Missing`."""
    nodes = [replace(node, recording=_before_trials(node.recording)) for node in nodes]
    processes = [process for _, process in ranks_of((node, node.recording) for node in nodes)]
    together = communication.build(processes)
    judged = choose(processes, together)
    numbers = {process.rank for process in judged}
    if len(judged) < len(processes) and not isinstance(together, Missing):
        together = replace(together, judged=tuple(sorted(numbers)))
    nodes = [replace(node, recording=_before_trials(node.recording.in_full(judged))) for node in nodes]
    ranks = ranks_of((node, node.recording) for node in nodes)
    names = job.names(nodes, ranks)
    runs = {
        node: _Run(node.recording, node.machine, host_of(node, nodes), job.build(node, names, ranks), together)
        for node in nodes
    }
    of_judged = (_rank(runs[node], process) for node, process in ranks if process.rank in numbers)
    told = [f"{name}: {note}" if name else note for node, name in names.items() for note in _skipped(node)]
    return RunEvidence(tuple(of_judged) or (_nobody(runs[nodes[0]]),), notes=(*job.notes(names, ranks), *told))


def _skipped(node: Node) -> tuple[str, ...]:
    """What the readers had to skip."""
    return (*node.recording.problems, *node.host.notes)


def _before_trials(recording: Recording) -> Recording:
    """Without what happened to the job once remedies were tried, and without the processes that this started."""
    began = min((p.trials.t for p in recording.processes if p.trials is not None), default=None)
    if began is None:
        return recording
    kept = tuple(p for p in recording.processes if p.header.t < began)
    return replace(recording, processes=tuple(_until(untouched(p), began) for p in kept))


def _until(process: ProcessRecording, t: int) -> ProcessRecording:
    """A worker's samples, and the batches that it had made by the last of them."""
    samples = tuple(sample for sample in process.worker_samples if sample.t <= t)
    if not samples:
        return replace(process, worker_samples=())
    return replace(process, worker_samples=samples, fetches=process.fetches.where(slice(samples[-1].fetched)))


def _rank(run: _Run, process: ProcessRecording) -> Evidence:
    selection = steady.select(process)
    # A worker that a fork server has started has that for its parent.
    pids = {pid for iterator in process.iterators for pid in iterator.workers}
    workers = [
        p
        for p in run.recording.processes
        if p.worker is not None and (p.worker.ppid == process.header.pid or p.header.pid in pids)
    ]
    step = selection if isinstance(selection, Missing) else steady.measure(process, selection)
    whole = anatomy.build(process, selection, run.recording.facts)
    rank = _Rank(run, process, workers, step, whole)
    parts = {name: build(rank) for name, build in _BUILDERS.items()}
    for name, build in _OF_STEADY_STEPS.items():
        parts[name] = selection if isinstance(selection, Missing) else build(rank, selection)
    return _evidence(run, process.rank, process.faults, parts)


def _training(recording: Recording) -> set[int]:
    """Pids of what takes steps, evaluates or makes batches."""
    seen = recording.processes
    workers = {pid for process in seen for iterator in process.iterators for pid in iterator.workers}
    return workers | {p.header.pid for p in seen if len(p.steps) or p.worker is not None or len(p.evaluations)}


def _host(run: _Run, steps: Selection) -> Host | Missing:
    started = [one for process in run.recording.processes for one in process.started]
    training = _training(run.recording)
    return build_host(run.host.samples, steps.start_ns, steps.end_ns, run.machine.gpus, training, started)


def _nobody(run: _Run) -> Evidence:
    """A run in which no process took a step."""
    parts: dict[str, object] = dict.fromkeys((*_BUILDERS, *_OF_STEADY_STEPS), _why_no_step(run.recording))
    parts["host"] = build_host(run.host.samples, 0, 2**62)
    faults = tuple(fault for process in run.recording.processes for fault in process.faults)
    return _evidence(run, 0, faults, parts)


def _evidence(run: _Run, rank: int, faults: tuple[ProbeFault, ...], parts: Mapping[str, Any]) -> Evidence:
    return Evidence(rank=rank, machine=run.machine, job=run.job, probe_faults=faults, **parts)


def _spark(recording: Recording) -> SparkResources | Missing:
    return next((p.spark for p in recording.processes if p.spark is not None), NO_SPARK)


def _own_cost(rank: _Rank, steps: Selection) -> OwnCost:
    process, settings = rank.process, rank.process.settings
    observed_ms = float(steps.rows["wall_us"].sum()) / 1000
    window_ms = process.samples[-1].window_us / 1000 if process.samples else 0.0
    # The rows of windowed steps are longer than they would be; that length is our cost too.
    marked = steps.rows["wall_us"][steps.rows["marked"] == 1] / 1000
    typical = float(steps.column("wall_us").mean()) / 1000
    window_ms += float((marked - typical).clip(min=0).sum())
    hooks_us = (steps.per_step("events") or 0.0) * (settings.hook_ns if settings else 0.0) / 1000
    return OwnCost(
        hooks_us_per_step=hooks_us + (steps.per_step("own_us") or 0.0),
        start_ms=settings.start_ms if settings else Missing("the job ended too early"),
        window_ms=window_ms,
        window_share=window_ms / (observed_ms + window_ms) if observed_ms else 0.0,
        monitor_cpus=build_monitor_cpus(rank.run.host.samples, steps.start_ns, steps.end_ns),
        bytes_per_step=process.size_bytes / max(1, len(process.steps)),
    )


def _why_no_step(recording: Recording) -> Missing:
    """The likeliest reason that no step was seen, from how far the processes came."""
    if not recording.processes:
        return Missing(
            "no Python process of the job let the probe in: the command is not Python, or runs with -E, -I or -S",
            code="not-python",
        )
    unseen = ray.unseen(recording.processes)
    if unseen is not None:
        return unseen
    errors = [p.torch.error for p in recording.processes if p.torch is not None and p.torch.error]
    if errors:
        return Missing(f"torch could not be imported ({errors[0]})", code="torch-broken")
    spark = _spark(recording)
    if (
        not isinstance(spark, Missing)
        and spark.master != "local"
        and all(p.torch is None or p.spark for p in recording.processes)
    ):
        return Missing(
            "no executor of Spark's reported: it ran no task that imports torch, or it reaches neither the run "
            "directory nor the driver's address",
            "name a directory that the executors see too: --runs DIR",
            code="no-worker",
        )
    if all(p.torch is None for p in recording.processes):
        return Missing("the job never imported torch", code="no-torch")
    return Missing("no training or inference step was seen", code="no-step")
