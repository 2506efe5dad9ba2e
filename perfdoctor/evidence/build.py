"""From a recording to evidence: one object per rank, with workers counted to theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, cast

from ..recording.host import HostRecording
from ..recording.machine import Machine
from ..recording.model import Columns, ProcessRecording, Recording
from . import (
    backend,
    code_lines,
    concurrency,
    counters,
    device,
    garbage,
    indices,
    layers,
    libraries,
    loading,
    memory,
    operators,
    settings,
    steady,
)
from .host import build_host, build_monitor_cpus
from .model import Evidence, Job, JobEnd, Missing, OwnCost, ProbeFault, RunEvidence
from .places import Places
from .untouched import untouched

T = TypeVar("T")
_EndKind = Literal["finished", "stopped", "crashed", "killed", "interrupted", "timeout", "unknown"]


@dataclass(frozen=True, slots=True)
class _Run:
    """What all ranks share."""

    recording: Recording
    machine: Machine
    host: HostRecording
    job: Job


def build(recording: Recording, machine: Machine, host: HostRecording) -> RunEvidence:
    """Evidence of all ranks. A run without a rank yields one, in which everything measured is `Missing`."""
    recording = _before_trials(recording)
    ranks = sorted((p for p in recording.processes if p.role == "rank"), key=lambda p: (p.rank, p.header.t))
    run = _Run(recording, machine, host, _job(recording, ranks))
    evidence = tuple(_rank(run, process) for process in ranks) or (_nobody(run),)
    return RunEvidence(evidence, notes=(*recording.problems, *host.notes))


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
    made = {name: column[: samples[-1].fetched] for name, column in process.fetches.arrays.items()}
    return replace(process, worker_samples=samples, fetches=Columns(made))


def _job(recording: Recording, ranks: Sequence[ProcessRecording]) -> Job:
    facts = recording.facts
    with_torch = [p for p in recording.processes if p.torch is not None and p.torch.version]
    lead = next(iter([*ranks, *with_torch]), None)
    torch = lead.torch if lead else None
    roles = [p.role for p in recording.processes]
    return Job(
        command=facts.command,
        cwd=facts.cwd,
        python_version=lead.header.python if lead else "",
        torch_version=torch.version if torch else "",
        torch_build=_torch_build(torch.cuda, torch.hip) if torch else "",
        started=facts.started,
        end=JobEnd(cast(_EndKind, facts.end), facts.exit_code, facts.signal, facts.detail),
        world_size=max((rank.world_size for rank in ranks), default=1),
        local_ranks=len(ranks),
        workers=roles.count("worker"),
        helpers=roles.count("helper"),
        frameworks=_frameworks(lead),
        trainer=lead.settings.trainer if lead and lead.settings else "",
        environment=tuple(sorted(facts.environment.items())),
        compiled=bool(lead and lead.settings and lead.settings.compiled),
    )


def _torch_build(cuda: str | None, hip: str | None) -> str:
    if cuda:
        return "cu" + cuda.replace(".", "")
    return f"rocm{hip}" if hip else "cpu"


def _frameworks(process: ProcessRecording | None) -> tuple[str, ...]:
    return process.settings.frameworks if process and process.settings else ()


def _rank(run: _Run, process: ProcessRecording) -> Evidence:
    selection = steady.select(process)
    places = Places(process.sites, process.torch.cwd if process.torch else run.recording.facts.cwd)
    workers = [p for p in run.recording.processes if p.worker is not None and p.worker.ppid == process.header.pid]
    host_samples = run.host.samples
    if isinstance(selection, Missing):
        return Evidence(
            rank=process.rank,
            machine=run.machine,
            job=run.job,
            step=selection,
            loaders=selection,
            gc=selection,
            memory=selection,
            cuda_memory=selection,
            ops=operators.profile(process),
            call_sites=operators.call_sites(process, places),
            precision=settings.precision(process, places),
            threads=settings.threads(process, places, None, run.recording.facts.environment),
            host=selection,
            own_cost=selection,
            probe_faults=_faults(process),
            backend=backend.build(process, places, run.recording.cap_timings),
            layers=layers.layers(process, selection, places),
            hot_lines=layers.hot_lines(process, places, selection),
            concurrency=selection,
            library_use=libraries.use(process),
            cudnn=libraries.cudnn(process),
            device=selection,
            counters=counters.counters(process),
            index_use=indices.index_use(process),
            debugging=settings.debugging(process),
            code_lines=code_lines.code_lines(process, places, selection),
        )
    step, ops = steady.measure(process, selection), operators.profile(process)
    return Evidence(
        rank=process.rank,
        machine=run.machine,
        job=run.job,
        step=step,
        loaders=loading.build(process, workers, selection, places),
        gc=garbage.build(process, selection, places),
        memory=memory.host(process, selection, places),
        cuda_memory=memory.cuda(process, selection),
        ops=ops,
        call_sites=operators.call_sites(process, places),
        precision=settings.precision(process, places),
        threads=settings.threads(process, places, selection, run.recording.facts.environment),
        host=build_host(host_samples, selection.start_ns, selection.end_ns, run.machine.gpus),
        own_cost=_own_cost(process, selection, build_monitor_cpus(host_samples, selection.start_ns, selection.end_ns)),
        probe_faults=_faults(process),
        backend=backend.build(process, places, run.recording.cap_timings),
        layers=layers.layers(process, step, places),
        hot_lines=layers.hot_lines(process, places, step),
        concurrency=concurrency.build(process, selection, places),
        library_use=libraries.use(process),
        cudnn=libraries.cudnn(process),
        device=device.timeline(process, selection, step, ops),
        counters=counters.counters(process),
        index_use=indices.index_use(process),
        debugging=settings.debugging(process),
        code_lines=code_lines.code_lines(process, places, step),
    )


def _faults(process: ProcessRecording) -> tuple[ProbeFault, ...]:
    return tuple(ProbeFault(fault.hook, fault.error) for fault in process.faults)


def _own_cost(process: ProcessRecording, selection: steady.Selection, monitor_cpus: float | Missing) -> OwnCost:
    unit_ns = process.settings.unit_ns if process.settings else 0.0
    observed_ms = float(selection.rows["wall_us"].sum()) / 1000
    window_ms = process.samples[-1].window_us / 1000 if process.samples else 0.0
    # The rows of windowed steps are longer than they would be; that length is our cost too.
    marked = selection.rows["wall_us"][selection.rows["marked"] == 1] / 1000
    typical = float(selection.column("wall_us").mean()) / 1000
    window_ms += float((marked - typical).clip(min=0).sum())
    return OwnCost(
        hooks_us_per_step=(selection.per_step("events") or 0.0) * unit_ns / 1000
        + (selection.per_step("own_us") or 0.0),
        start_ms=process.settings.start_us / 1000 if process.settings else Missing("the job ended too early"),
        window_ms=window_ms,
        window_share=window_ms / (observed_ms + window_ms) if observed_ms else 0.0,
        monitor_cpus=monitor_cpus,
        bytes_per_step=process.size_bytes / max(1, len(process.steps)),
    )


def _nobody(run: _Run) -> Evidence:
    """A run in which no process took a step."""
    nothing = _why_no_step(run.recording)
    return Evidence(
        rank=0,
        machine=run.machine,
        job=run.job,
        step=nothing,
        loaders=nothing,
        gc=nothing,
        memory=nothing,
        cuda_memory=nothing,
        ops=nothing,
        call_sites=nothing,
        precision=nothing,
        threads=nothing,
        host=build_host(run.host.samples, 0, 2**62),
        own_cost=nothing,
        layers=nothing,
        hot_lines=nothing,
        concurrency=nothing,
        library_use=nothing,
        cudnn=nothing,
        device=nothing,
        counters=nothing,
        index_use=nothing,
        debugging=nothing,
        code_lines=nothing,
        probe_faults=tuple(fault for p in run.recording.processes for fault in _faults(p)),
        backend=nothing,
    )


def _why_no_step(recording: Recording) -> Missing:
    """The likeliest reason that no step was seen, from how far the processes came."""
    if not recording.processes:
        return Missing(
            "no Python process of the job let the probe in: the command is not Python, or runs with -E, -I or -S",
            code="not-python",
        )
    errors = [p.torch.error for p in recording.processes if p.torch is not None and p.torch.error]
    if errors:
        return Missing(f"torch could not be imported ({errors[0]})", code="torch-broken")
    if all(p.torch is None for p in recording.processes):
        return Missing("the job never imported torch", code="no-torch")
    return Missing("no training or inference step was seen", code="no-step")
