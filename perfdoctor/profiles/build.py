"""From sampled stacks to profiles.

A sample tells in which part of the step it was taken, and how long each part takes is measured in every step. So
samples only divide a part among its lines: chance, and moments at which the sampler had to wait for the GIL, move time
between lines of a part, and none from one part to another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..evidence import steady
from ..evidence.windows import call_sites
from ..injected._perfdoctor_probe import records
from ..recording.base import Missing
from ..recording.lines import Line
from ..recording.model import Columns, ProcessRecording, Recording
from . import hot_lines
from .model import Frame, Profile, Stack

_LIBRARY, _USERS, _TYPED = range(3)
"""Owners of a node."""
_PASSED_ON = ("_wrapped_call_impl", "_call_impl")
"""Functions in which a module's call only reaches its `forward`: every layer has them."""
_WORKER = "_worker_loop"
"""torch's function in which a worker makes batches: a forked one has the stack of its parent around it."""
_LEAST_BUSY = 0.02
"""Of all moments: a thread that was met at fewer (it feeds a queue) takes no time worth a profile."""
NOT_SAMPLED = Missing("no stacks were sampled", "record them with `perfdoctor profile`")


def build(recording: Recording) -> tuple[Profile, ...] | Missing:
    """Of every rank: its training thread, its workers, and its other threads; or why there is none."""
    profiles: list[Profile] = []
    reasons: list[Missing] = []
    several = len(recording.ranks) > 1
    for process in recording.ranks:
        found = _of_rank(process, recording, f"rank {process.rank}" if several else "")
        if isinstance(found, Missing):
            reasons.append(found)
        else:
            profiles += found
    return tuple(profiles) or next(iter(reasons), Missing("no training or inference step was seen", code="no-step"))


def _of_rank(process: ProcessRecording, recording: Recording, rank: str) -> list[Profile] | Missing:
    selection = steady.select(process)
    if isinstance(selection, Missing):
        return selection
    if not len(process.stacks):
        return NOT_SAMPLED
    step = steady.measure(process, selection)
    rows = process.stacks.where(np.isin(process.stacks["step"], selection.column("step")))
    if not rows["weight"][rows["thread"] == 0].sum():
        return Missing("no steady step was sampled", "sample longer: --seconds 30")
    window = call_sites(process)
    issued = () if isinstance(window, Missing) else window.lines
    of_rank = f" of {rank}" if rank else ""
    main = rows.where(rows["thread"] == 0)
    stacks = _stacks(process, main, step.parts.as_dict())
    profiles = [_profile(rank or "training thread", step.step_ms, step.count, stacks, issued)]
    moments = int(main["weight"].sum())
    for thread in process.stack_threads:
        own = rows.where(rows["thread"] == thread.id)
        if own["weight"].sum() >= _LEAST_BUSY * moments:
            busy_ms = step.step_ms * int(own["weight"].sum()) / moments
            name = f"thread {thread.name}{of_rank}"
            profiles.append(_profile(name, step.step_ms, step.count, _stacks(process, own, busy_ms)))
    workers = [p for p in recording.processes if p.worker is not None and p.worker.ppid == process.header.pid]
    making = _of_workers(workers, of_rank)
    return [*profiles[:1], *([making] if making else []), *profiles[1:]]


def _of_workers(workers: Sequence[ProcessRecording], of_rank: str) -> Profile | None:
    """All workers of a rank as one: they do the same, by turns."""
    made = sum(len(worker.fetches) for worker in workers)
    spent_us = sum(
        int(worker.fetches[name].sum()) for worker in workers for name in ("getitem_us", "collate_us", "gc_us")
    )
    total = sum(worker.sampled for worker in workers)
    if not made or not total:
        return None
    ms = spent_us / 1000 / made
    found: list[Stack] = []
    for worker in workers:
        rows = worker.stacks.where(worker.stacks["thread"] == 0)
        found += _stacks(worker, rows, ms * worker.sampled / total)
    count = len({worker.worker.worker for worker in workers if worker.worker is not None})
    return _profile(f"{count} worker{'s'[: count != 1]}{of_rank}", ms, made, found, unit="batch")


def _profile(
    name: str, total_ms: float, count: int, stacks: Sequence[Stack], issued: Sequence[Line] = (), unit: str = "step"
) -> Profile:
    return Profile(
        name=name,
        unit="batch" if unit == "batch" else "step",
        total_ms=total_ms,
        count=count,
        samples=sum(stack.samples for stack in stacks),
        stacks=tuple(sorted(stacks, key=lambda stack: -stack.ms)),
        lines=hot_lines.lines(stacks, total_ms, issued),
    )


def _stacks(process: ProcessRecording, rows: Columns, parts_ms: dict[str, float] | float) -> list[Stack]:
    """Of these rows, with their time: `parts_ms` is that of each part, or of all of them together."""
    numbers: Counter[tuple[str, int]] = Counter()
    for part, node, weight in zip(rows["part"].tolist(), rows["node"].tolist(), rows["weight"].tolist(), strict=True):
        if 0 <= part < len(records.SAMPLED_PARTS):
            numbers[records.SAMPLED_PARTS[part], node] += weight
    sampled: Counter[str] = Counter()
    for (part, _), weight in numbers.items():
        sampled[part] += weight
    every = sum(sampled.values())
    frames = _Frames(process)
    found = []
    for (part, node), weight in numbers.items():
        if isinstance(parts_ms, dict):
            ms = parts_ms.get(part, 0.0) * weight / sampled[part]
        else:
            ms = parts_ms * weight / every
        found.append(Stack(frames.of(node), part, weight, ms))
    return found


class _Frames:
    """The frames of nodes."""

    def __init__(self, process: ProcessRecording) -> None:
        self.above = process.nodes["above"].tolist()
        self.sites = process.nodes["site"].tolist()
        self.owners = process.nodes["owner"].tolist()
        self.known = process.stack_sites

    def of(self, node: int) -> tuple[Frame, ...]:
        """The outermost first."""
        chain = []
        while 0 <= node < len(self.above):
            chain.append(node)
            above = self.above[node]
            node = above if above < node else -1  # a damaged file is no reason to run in circles
        has_file = any(self.owners[one] == _USERS for one in chain)
        found: list[Frame] = []
        for one in reversed(chain):
            site = self.known.get(self.sites[one])
            if site is None or site.function.endswith(_PASSED_ON):
                continue
            if site.function == _WORKER:
                found.clear()
            owner = self.owners[one]
            found.append(Frame(site, owner == _USERS or (owner == _TYPED and not has_file)))
        return tuple(found)
