"""Traces of one job, one of each rank, as the evidence of a run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...recording.machine import Gpu, Machine
from ...traces.model import Trace
from ..model import Collectives, Evidence, Job, JobEnd, Missing, RunEvidence
from . import device, host, names, operators
from .collectives import collectives
from .counters import counters
from .device import Scene
from .lines import Lines
from .segments import Segments
from .window import Window, window

_RUN = "run the job itself: perfdoctor check train.py"
_NOT_IN_A_TRACE = Missing("a trace does not hold it", _RUN)
_NO_LOADERS = Missing("a trace shows the wait for batches, not how they are made", _RUN)
_HOST = re.compile(r"^.+(?=_\d+\.\d{10,}\.pt\.trace\.json)")
"""In front of the process number, where TensorBoard's handler named the file: the machine's name."""
_NO_DEVICE = Missing(
    "no work of a device was recorded", "record it with ProfilerActivity.CUDA, if the job uses a device"
)


def build(traces: Sequence[Trace]) -> RunEvidence:
    """Evidence of all ranks; at least one trace."""
    ranks = _ranked(traces)
    windows = {rank: window(trace) for rank, trace in ranks.items()}
    seen = {rank: one for rank, one in windows.items() if not isinstance(one, Missing)}
    scenes = {rank: _scene(ranks[rank], one) for rank, one in seen.items() if len(ranks[rank].work)}
    talk = collectives(scenes)
    evidence = tuple(
        _evidence(trace, rank, windows[rank], scenes.get(rank), talk.get(rank), len(ranks))
        for rank, trace in ranks.items()
    )
    return RunEvidence(evidence, notes=_notes(traces))


def _ranked(traces: Sequence[Trace]) -> dict[int, Trace]:
    """By rank; in their order where the traces do not say, or say the same."""
    stated = [trace.rank for trace in traces]
    if None in stated or len(set(stated)) < len(stated):
        return dict(enumerate(traces))
    return dict(sorted((trace.rank or 0, trace) for trace in traces))


def _scene(trace: Trace, seen: Window) -> Scene:
    work, devices = device.busiest(trace)
    sets = host.host_sets(trace, seen)
    segments = Segments(
        seen.span,
        {
            **device.device_sets(trace, work),
            **sets.parts,
            "allocator": sets.allocator,
            "copy calls": sets.copies,
            "operators": sets.operators,
        },
    )
    parts = host.divided(segments)
    lines = Lines(trace, seen.thread)
    return Scene(trace, seen, work, device.asked(trace, work), devices, segments, sets, parts, lines)


def _evidence(
    trace: Trace,
    rank: int,
    seen: Window | Missing,
    scene: Scene | None,
    talk: Collectives | None,
    ranks: int,
) -> Evidence:
    machine, job = _machine(trace), _job(trace, ranks)
    absent: dict[str, Any] = dict.fromkeys(_FIELDS, _NOT_IN_A_TRACE) | {"loaders": _NO_LOADERS}
    if isinstance(seen, Missing):
        return Evidence(rank=rank, machine=machine, job=job, **(absent | {"step": seen, "activity": seen}))
    if scene is None:
        segments = Segments(seen.span, host.host_sets(trace, seen).parts)
        parts = host.divided(segments)
        measured: dict[str, Any] = {"activity": _NO_DEVICE}
    else:
        segments, parts = scene.segments, scene.parts
        activity = device.activity(scene, talk)
        measured = {"activity": activity, "device": device.timeline(scene, activity)}
    ops = operators.profile(trace, seen)
    if not isinstance(ops, Missing):
        unseen = _NOT_IN_A_TRACE
        ops = replace(ops, batch_timings=unseen, batch_replay=unseen, update=unseen, parameters=unseen)
    measured["counters"] = counters(trace, seen, ops)
    step = host.step(seen, segments, parts, Missing("a trace does not say how many samples a step has"))
    return Evidence(
        rank=rank,
        machine=machine,
        job=job,
        **(absent | {"step": step, "ops": ops} | measured),
    )


_FIELDS = tuple(
    name for name in Evidence.__dataclass_fields__ if name not in ("rank", "machine", "job", "probe_faults")
)


def _machine(trace: Trace) -> Machine:
    """What a trace says of it: its devices."""
    return Machine(
        cpu_model="",
        logical_cpus=0,
        physical_cores=None,
        affinity_cpus=0,
        quota_cpus=None,
        memory_bytes=0,
        kernel="",
        page_fault_ns=None,
        gpus=tuple(Gpu(one.index, one.name, one.memory_bytes, "") for one in trace.devices),
    )


def _job(trace: Trace, ranks: int) -> Job:
    return Job(
        command=(_without_host(trace),),
        cwd="",
        python_version="",
        torch_version="",
        torch_build=trace.platform,
        started="",
        end=JobEnd("unknown"),
        world_size=max(ranks, trace.world_size or 1),
        local_ranks=ranks,
        workers=0,
        helpers=0,
        frameworks=(),
        environment=(),
        traced=True,
        compiled=bool(names.compiled(trace.names).any()),
    )


def _without_host(trace: Trace) -> str:
    """The file's name."""
    return _HOST.sub("***", trace.source)


def _notes(traces: Sequence[Trace]) -> tuple[str, ...]:
    notes = []
    for trace in traces:
        which = f"{_without_host(trace)}: " if len(traces) > 1 else ""
        if trace.cut:
            notes.append(f"{which}the file ends in the middle, and is judged as far as it goes")
        notes += [f"{which}{problem}" for problem in trace.problems]
    return tuple(notes)
