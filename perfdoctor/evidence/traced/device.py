"""What the device did, and what the host did while it had nothing to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...traces.model import NOT_SAID, Calls, Floats, Ints, Kind, Trace, Work
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


def device_sets(trace: Trace, work: Work) -> dict[str, tuple[Floats, Floats]]:
    """Sets of intervals in which the device does something."""
    talks = communicates(trace, work)
    is_copy = work.kind == Kind.COPY
    down = is_copy & _named(trace, work, "HtoD")
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
        "pageable": spans(work.where(down & _named(trace, work, "Pageable"))),
    }


def communicates(trace: Trace, work: Work) -> Mask:
    """Kernels of collectives: the profiler says so, or their name does."""
    by_name = names.communication(trace.names)[work.name]
    return np.asarray((work.kind == Kind.KERNEL) & (by_name | (work.collective != NOT_SAID)))


def _named(trace: Trace, work: Work, word: str) -> Mask:
    return np.fromiter((word in name for name in trace.names), bool, len(trace.names))[work.name]


def activity(scene: Scene, collectives: Collectives | None) -> Activity:
    """The whole of it."""
    trace, window, work, seg = scene.trace, scene.window, scene.work, scene.segments
    steps = window.steps
    is_kernel = work.kind == Kind.KERNEL
    device = int(work.device[0])
    name = next((facts.name for facts in trace.devices if facts.index == device), "")
    late = late_kernels(trace, work)
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


def late_kernels(trace: Trace, work: Work) -> Mask:
    """Work that the host asked for when its stream had nothing left to do."""
    late = np.zeros(len(work), dtype=bool)
    known = work.call != NOT_SAID
    called = np.full(len(work), -np.inf)
    called[known] = trace.calls.start_us[work.call[known]]
    for stream in np.unique(work.stream):
        rows = np.flatnonzero(work.stream == stream)
        # Of what ran before a stream's first work nothing is known.
        ended = np.concatenate([[np.inf], np.maximum.accumulate(work.end_us[rows])[:-1]])
        late[rows] = (called[rows] >= ended) | (work.start_us[rows] - called[rows] < LATE_US)
    return np.asarray(late & known)


_DEEP = 0.5
"""Of the work before a synchronisation: with more of it late the host was no faster than the device anyway."""
_BEFORE = 10
"""Work before it that is asked."""


def _after_syncs(scene: Scene, late: Mask) -> Mask:
    """Idle segments from a synchronisation on to the next work, where the host had been ahead of the device until then:
    a host that is late anyway loses nothing by waiting."""
    seg, work = scene.segments, scene.work
    found = np.zeros(len(seg.lengths), dtype=bool)
    starts, ends = scene.host.syncs
    if not len(starts) or not len(work):
        return found
    before = np.searchsorted(work.start_us, ends)
    so_far = np.concatenate([[0], np.cumsum(late)])
    low = np.maximum(0, before - _BEFORE)
    was_late = (so_far[before] - so_far[low]) / np.maximum(1, before - low)
    deep = (before > 0) & (was_late <= _DEEP)
    following = np.append(work.start_us, scene.window.end)[before]
    idle = ~seg["busy"]
    waiting = Segments(scene.window.span, {"sync": (starts[deep], np.maximum(following, ends)[deep])})
    where = waiting["sync"][np.searchsorted(waiting.borders, seg.borders[:-1], side="right") - 1]
    return np.asarray(idle & where)


def _staging(scene: Scene) -> Mask:
    """Segments before a copy, with the host in a call that copies."""
    seg, work = scene.segments, scene.work
    following = np.searchsorted(work.start_us, seg.borders[1:], side="left")
    return np.asarray(seg["copy calls"] & np.append(work.kind == Kind.COPY, False)[following] & ~seg["busy"])


def _queued(scene: Scene, late: Mask) -> Mask:
    """Segments before work that the host had asked for in time: it waits for another stream, or is being started."""
    work = scene.work
    following = np.searchsorted(work.start_us, scene.segments.borders[1:], side="left")
    # What was launched before the trace began was launched in time.
    return np.asarray(np.append(~late, False)[following])


# -- what else --------------------------------------------------------------------------------------------


def _copies(scene: Scene) -> CopyUse:
    seg, work = scene.segments, scene.work
    alone = ~seg["computing"] & ~seg["communication"]
    down = (work.kind == Kind.COPY) & _named(scene.trace, work, "HtoD")
    staged = scene.per_step(_staging(scene)) if seg["pageable"].any() else 0.0
    return CopyUse(
        ms=scene.per_step(seg["down"]),
        exposed_ms=scene.per_step(seg["down"] & alone),
        pageable_ms=scene.per_step(seg["pageable"]),
        pageable_exposed_ms=scene.per_step(seg["pageable"] & alone) + staged,
        bytes=float(work.bytes[down].clip(min=0).sum()) / scene.window.steps,
    )


def _called(scene: Scene, of_kind: Mask) -> Called | None:
    calls = _within(scene.trace.calls, scene.window).where(slice(None))
    calls = calls.where(of_kind[calls.name])
    if not len(calls):
        return None
    ms = np.bincount(calls.name, weights=calls.end_us - calls.start_us) / 1000
    steps = scene.window.steps
    return Called(scene.trace.names[int(ms.argmax())], len(calls) / steps, float(ms.sum()) / steps)


def _within(calls: Calls, window: Window) -> Calls:
    return calls.where((calls.end_us > window.begin) & (calls.start_us < window.end))


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
    asked = np.full(len(work), np.nan)
    known = work.call != NOT_SAID
    asked[known] = trace.calls.start_us[work.call[known]]
    inside = kernels.within(asked, seg, mine) & (work.kind == Kind.KERNEL)
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
    seg, work, trace, steps = scene.segments, scene.work, scene.trace, scene.window.steps
    asked = np.full(len(work), np.nan)
    known = work.call != NOT_SAID
    asked[known] = trace.calls.start_us[work.call[known]]
    idle = ~seg["busy"]
    by_part, left = {}, seg["busy"].copy()
    for part in ("forward", "backward", "optimizer"):
        rows = kernels.within(asked, seg, scene.parts[part])
        theirs = Segments(scene.window.span, {part: spans(work.where(rows))})
        mine = theirs[part][np.searchsorted(theirs.borders, seg.borders[:-1], side="right") - 1] & left
        left &= ~mine
        by_part[part] = scene.per_step(mine | (idle & scene.parts[part]))
    waits = scene.per_step(idle & scene.parts["input_wait"])
    ahead = (work.start_us - asked)[known & (work.kind == Kind.KERNEL)] / 1000
    typical = float(np.median(ahead)) if ahead.size else 0.0
    return DeviceTimeline(
        steps=steps,
        parts=DeviceParts(input_wait=waits, **by_part, other=max(0.0, seen.step_ms - waits - sum(by_part.values()))),
        idle_most_ms=seen.idle_ms,
        ahead_low_ms=typical,
        ahead_high_ms=float(np.percentile(ahead, 90)) if ahead.size else 0.0,
        busy_share=1 - seen.idle_share,
    )
