"""What the device did, and what the host did while it had nothing to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.model import NOT_SAID, Floats, Ints, Kind, Trace, Work
from ..model import (
    Activity,
    Called,
    Collectives,
    CopyUse,
    DeviceParts,
    DeviceTimeline,
    Idle,
    IdleTime,
    Missing,
    OptimizerUse,
)
from . import kernels, names
from .host import HostSets
from .lines import Lines
from .peaks import peaks_of
from .segments import Mask, Segments, spans
from .window import Window

LATE_US = 20.0
"""From the beginning of its launch to that of the kernel: sooner than that no queue can have been between them. On a
V100 an idle stream starts a kernel 5 to 15 us after the call began."""
_EVENT_US = 0.9
"""What recording one event takes of the host: torch 2.13 on a server CPU, operators with shapes and stacks 2 to 3."""


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the questions below look at."""

    trace: Trace
    window: Window
    work: Work
    """Of the busiest device."""
    asked_us: Floats
    """When the host began to ask for each piece of it; NaN where the trace does not say."""
    devices: int
    segments: Segments
    host: HostSets
    parts: Mapping[str, Mask]
    lines: Lines

    def per_step(self, mask: Mask) -> float:
        return self.segments.ms(mask) / self.window.steps


def busiest(trace: Trace) -> tuple[Work, int]:
    """The work of the device that has most of it, and how many have any."""
    devices = np.unique(trace.work.device)
    if len(devices) < 2:
        return trace.work, len(devices)
    taken = [float((trace.work.end_us - trace.work.start_us)[trace.work.device == one].sum()) for one in devices]
    return trace.work.where(trace.work.device == devices[int(np.argmax(taken))]), len(devices)


def asked(trace: Trace, work: Work) -> Floats:
    """When the call that asked for each piece of work began, microseconds; NaN where that is not in the trace."""
    known = work.call != NOT_SAID
    found = np.full(len(work), np.nan)
    found[known] = trace.calls.start_us[work.call[known]]
    return found


def device_sets(trace: Trace, work: Work) -> dict[str, tuple[Floats, Floats]]:
    """Sets of intervals in which the device does something."""
    talks = communicates(trace, work)
    is_copy = work.kind == Kind.COPY
    down = is_copy & names.holding(trace.names, "HtoD")[work.name]
    multiplies = (work.kind == Kind.KERNEL) & ~talks & names.products(trace.names)[work.name]
    return {
        "busy": spans(work),
        "products": spans(work.where(multiplies)),
        "elementwise": spans(work.where((work.kind == Kind.KERNEL) & names.elementwise(trace.names)[work.name])),
        "communication": spans(work.where(talks)),
        "computing": spans(work.where((work.kind == Kind.KERNEL) & ~talks)),
        "layouts": spans(work.where((work.kind == Kind.KERNEL) & names.layouts(trace.names)[work.name])),
        "copies": spans(work.where(is_copy)),
        "down": spans(work.where(down)),
        "pageable": spans(work.where(down & names.holding(trace.names, "Pageable")[work.name])),
    }


def communicates(trace: Trace, work: Work) -> Mask:
    """Kernels of collectives: the profiler says so, or their name does."""
    by_name = names.communication(trace.names)[work.name]
    return np.asarray((work.kind == Kind.KERNEL) & (by_name | (work.collective != NOT_SAID)))


def activity(scene: Scene, collectives: Collectives | None) -> Activity:
    """The whole of it."""
    trace, window, work, seg = scene.trace, scene.window, scene.work, scene.segments
    steps = window.steps
    is_kernel = work.kind == Kind.KERNEL
    device = int(work.device[0])
    name = next((facts.name for facts in trace.devices if facts.index == device), "")
    late = late_kernels(work, scene.asked_us)
    idle = tuple(sorted(_idle(scene, late), key=lambda one: -one.ms))
    return Activity(
        device=name,
        devices=scene.devices,
        steps=steps,
        window_ms=(window.end - window.begin) / 1000,
        step_ms=window.step_ms,
        busy_ms=scene.per_step(seg["busy"]),
        computing_ms=scene.per_step(seg["computing"]),
        copying_ms=scene.per_step(seg["copies"]),
        idle=idle,
        input_ms=scene.per_step(scene.parts["input_wait"]),
        workers=_workers(trace),
        copies=_copies(scene),
        collectives=collectives,
        allocator=_called(scene, names.allocator(trace.names)),
        syncs=_called(scene, names.syncs(trace.names)),
        launches=float(is_kernel.sum()) / steps,
        late_share=float(late[is_kernel].mean()) if is_kernel.any() else 0.0,
        layouts_ms=scene.per_step(seg["layouts"] & ~seg["communication"]),
        products=kernels.products(trace, work, steps),
        optimizer=_optimizer(scene),
        products_ms=scene.per_step(seg["products"] & ~seg["communication"]),
        elementwise_ms=scene.per_step(seg["elementwise"] & ~seg["communication"]),
        kernels=kernels.largest(trace, work, steps),
        peaks=peaks_of(name),
        inflation_ms=_inflation(scene),
        unlaunched=int(((work.call == NOT_SAID) & (work.correlation != NOT_SAID)).sum()),
    )


# -- idle time --------------------------------------------------------------------------------------------


def _idle(scene: Scene, late: Mask) -> list[IdleTime]:
    """Each idle segment has one cause, in the order of `Idle`."""
    seg = scene.segments
    left = ~seg["busy"]
    causes = {
        Idle.INPUT: scene.parts["input_wait"],
        Idle.ALLOCATOR: seg["allocator"],
        Idle.COPIES: _staging(scene),
        Idle.QUEUED: _queued(scene, late),
        Idle.SYNC: _after_syncs(scene, late),
        Idle.OPTIMIZER: scene.parts["optimizer"],
        Idle.LAUNCHING: scene.parts["forward"] | scene.parts["backward"] | seg["operators"],
        Idle.OTHER: np.ones_like(left),
    }
    found = []
    for cause, where in causes.items():
        mask = left & where
        left = left & ~where
        if mask.any():
            found.append(IdleTime(cause, scene.per_step(mask), scene.lines.during(seg.runs(mask))))
    return found


def late_kernels(work: Work, asked_us: Floats) -> Mask:
    """Work that the host asked for when its stream had nothing left to do; not where it is not known when."""
    late = np.zeros(len(work), dtype=bool)
    for stream in np.unique(work.stream):
        rows = np.flatnonzero(work.stream == stream)
        # Of what ran before a stream's first work nothing is known.
        ended = np.concatenate([[np.inf], np.maximum.accumulate(work.end_us[rows])[:-1]])
        late[rows] = (asked_us[rows] >= ended) | (work.start_us[rows] - asked_us[rows] < LATE_US)
    return late


_DEEP = 0.5
"""Of the work before a synchronisation: with more of it late the host was no faster than the device anyway."""
_BEFORE = 10
"""Work before it that is asked."""


def _after_syncs(scene: Scene, late: Mask) -> Mask:
    """Idle segments from a synchronisation on to the next work, where the host had been ahead of the device until then:
    a host that is late anyway loses nothing by waiting."""
    seg, work = scene.segments, scene.work
    starts, ends = scene.host.syncs
    if not len(starts):
        return np.zeros(len(seg.lengths), dtype=bool)
    before = np.searchsorted(work.start_us, ends)
    so_far = np.concatenate([[0], np.cumsum(late)])
    low = np.maximum(0, before - _BEFORE)
    was_late = (so_far[before] - so_far[low]) / np.maximum(1, before - low)
    deep = (before > 0) & (was_late <= _DEEP)
    following = np.append(work.start_us, scene.window.end)[before]
    return seg.beginning_in((starts[deep], np.maximum(following, ends)[deep]))


def _before(scene: Scene, rows: Mask) -> Mask:
    """Segments after which the next work is one of these."""
    following = np.searchsorted(scene.work.start_us, scene.segments.borders[1:], side="left")
    return np.asarray(np.append(rows, False)[following])


def _staging(scene: Scene) -> Mask:
    """Segments before a copy, with the host in a call that copies."""
    seg = scene.segments
    return seg["copy calls"] & _before(scene, scene.work.kind == Kind.COPY) & ~seg["busy"]


def _queued(scene: Scene, late: Mask) -> Mask:
    """Segments before work that the host had asked for in time: it waits for another stream, or is being started."""
    return _before(scene, ~late)  # what was launched before the trace began was launched in time


# -- what else --------------------------------------------------------------------------------------------


def _copies(scene: Scene) -> CopyUse:
    seg, work = scene.segments, scene.work
    alone = ~seg["computing"] & ~seg["communication"]
    down = (work.kind == Kind.COPY) & names.holding(scene.trace.names, "HtoD")[work.name]
    staged = scene.per_step(_staging(scene)) if seg["pageable"].any() else 0.0
    return CopyUse(
        ms=scene.per_step(seg["down"]),
        exposed_ms=scene.per_step(seg["down"] & alone),
        pageable_ms=scene.per_step(seg["pageable"]),
        pageable_exposed_ms=scene.per_step(seg["pageable"] & alone) + staged,
        bytes=float(work.bytes[down].clip(min=0).sum()) / scene.window.steps,
    )


def _called(scene: Scene, of_kind: Mask) -> Called | None:
    calls, window = scene.trace.calls, scene.window
    calls = calls.where(of_kind[calls.name] & (calls.end_us > window.begin) & (calls.start_us < window.end))
    if not len(calls):
        return None
    ms = np.bincount(calls.name, weights=calls.end_us - calls.start_us) / 1000
    return Called(scene.trace.names[int(ms.argmax())], len(calls) / window.steps, float(ms.sum()) / window.steps)


def _workers(trace: Trace) -> bool | Missing:
    used = np.unique(np.concatenate([trace.marks.name, trace.frames.name]))
    seen = [trace.names[one] for one in used]
    if names.with_workers(seen).any():
        return True
    return False if names.without_workers(seen).any() else Missing("the trace does not name the loader's iterator")


def _optimizer(scene: Scene) -> OptimizerUse | None:
    seg, work, trace = scene.segments, scene.work, scene.trace
    mine = scene.parts["optimizer"]
    if not mine.any():
        return None
    inside = kernels.within(scene.asked_us, seg, mine) & (work.kind == Kind.KERNEL)
    listed = names.listed(trace.names)[work.name] & inside
    steps = scene.window.steps
    return OptimizerUse(
        kernels=float(inside.sum()) / steps,
        listed=float(listed.sum()) / steps,
        host_ms=scene.per_step(mine),
        idle_ms=scene.per_step(mine & ~seg["busy"]),
    )


def _inflation(scene: Scene) -> float:
    """Of the thread that takes the steps, and of the one that runs its backward pass."""
    window, trace = scene.window, scene.trace
    events: Sequence[Floats | Ints] = (trace.operators.start_us, trace.frames.start_us, trace.calls.start_us)
    number = sum(int(((one >= window.begin) & (one < window.end)).sum()) for one in events)
    return number * _EVENT_US / 1000 / window.steps


def timeline(scene: Scene, seen: Activity) -> DeviceTimeline:
    """The parts of the step on the device: from what the host asked for in each, and idle time by the host's part."""
    seg, work = scene.segments, scene.work
    idle = ~seg["busy"]
    by_part, left = {}, seg["busy"].copy()
    for part in ("forward", "backward", "optimizer"):
        rows = kernels.within(scene.asked_us, seg, scene.parts[part])
        mine = seg.beginning_in(spans(work.where(rows))) & left
        left &= ~mine
        by_part[part] = scene.per_step(mine | (idle & scene.parts[part]))
    waits = scene.per_step(idle & scene.parts["input_wait"])
    ahead = (work.start_us - scene.asked_us)[(work.kind == Kind.KERNEL) & ~np.isnan(scene.asked_us)] / 1000
    typical = float(np.median(ahead)) if ahead.size else 0.0
    return DeviceTimeline(
        steps=scene.window.steps,
        parts=DeviceParts(input_wait=waits, **by_part, other=max(0.0, seen.step_ms - waits - sum(by_part.values()))),
        idle_most_ms=seen.idle_ms,
        ahead_low_ms=typical,
        ahead_high_ms=float(np.percentile(ahead, 90)) if ahead.size else 0.0,
        busy_share=1 - seen.idle_share,
    )
