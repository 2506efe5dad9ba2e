"""What timings say another setting would take off the step: the job's own operators, timed in its own process."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..model import Evidence, Missing, OpProfile, Step, ThreadTiming, VectorExtensionTiming, VectorExtensionTimings

_UNTIMED = (1.4, 2.0)
"""float64 over float32 for operators that could not be replayed: bound by memory, where half the bytes take 1/2
to 1/1.4 of the time."""
_SPREAD = (0.95, 1.2)
"""Of a measured ratio: it is taken from single operators with warm caches. In the job they meet fresh
memory as well, of which float32 needs half: of seven programs five gained up to 30 % more, and two up to 7 % less."""
_AT_MOST = 1.3
"""Times the ratio: the ceiling."""
_SLOWER = 1.1
"""A type is dear when float32 beats it by a tenth, measured."""
_REST_KEEPS = 0.5
"""Operators that were not timed gain half of what the timed ones do, at best."""


Timed = tuple[str, str, str]
"""An operator that was timed: name, shapes and type."""


def in_step(step: Step, ops: OpProfile, profiled_ms: float) -> float:
    """Profiled time as time of an ordinary step: the profiler makes every operator a little slower."""
    return profiled_ms * min(1.0, step.working_ms / ops.self_ms_per_step) if ops.self_ms_per_step > 0 else 0.0


def _spent(step: Step, ops: OpProfile, timed: Iterable[Timed]) -> dict[Timed, float]:
    """Milliseconds per step in each of these operators, by name, shapes and type, with all that they call; together no
    more than all operators of these types take by themselves: under `vmap` one product is made by another."""
    total = {(op.name, op.shapes, op.dtype): op.total_ms_per_step for op in ops.ops}
    took = {one: in_step(step, ops, total.get(one, 0.0)) for one in timed}
    there_is = in_step(step, ops, sum(ops.self_ms(dtype) for dtype in {dtype for _, _, dtype in took}))
    whole = sum(took.values())
    return {one: ms * min(1.0, there_is / whole) if whole > 0 else 0.0 for one, ms in took.items()}


# -- types ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypeCost:
    """A CPU's operators in one type, and what float32 would save of them; ms per step."""

    cost_ms: float
    sure_ms: float
    """Without what may be time without a CPU that fell into one operator; at least what the timed ones take on the
    clock of their thread, which does not count such time."""
    ratio: float | None
    """Over float32, of the operators that were timed; None when none was."""
    timed: int
    """How many were timed."""
    low_ms: float
    high_ms: float
    ceiling_ms: float

    @property
    def is_dear(self) -> bool:
        """Whether float32 would be faster, as far as that was measured."""
        return self.ratio is None or self.ratio >= _SLOWER


def type_cost(step: Step, ops: OpProfile, dtype: str) -> TypeCost:
    """Timed operators by their ratio; others by their bytes in float64, not at all in an emulated half type."""
    cost = in_step(step, ops, ops.self_ms(dtype))
    timings = [timing for timing in ops.timings if timing.dtype == dtype and timing.float32_milliseconds > 0]
    calls = {(op.name, op.shapes): op.calls_per_step for op in ops.ops if op.computes_in(dtype)}
    as_is = sum(calls.get((p.name, p.shapes), 0.0) * p.milliseconds for p in timings)
    in_single = sum(calls.get((p.name, p.shapes), 0.0) * p.float32_milliseconds for p in timings)
    ratio = as_is / in_single if in_single > 0 else None
    timed = min(cost, in_step(step, ops, as_is)) if ratio else 0.0
    rest = cost - timed
    # Memory-bound operators gain from half the bytes only in float64; emulated halves lose bytes instead.
    least, most = _UNTIMED if dtype == "float64" else (1.0, 1.0)
    return TypeCost(
        cost_ms=cost,
        sure_ms=max(in_step(step, ops, max(0.0, ops.self_ms(dtype) - ops.stray_ms)), min(cost, as_is)),
        ratio=ratio,
        timed=len(timings),
        low_ms=timed * _saved(ratio, _SPREAD[0]) + rest * (1 - 1 / least),
        high_ms=timed * _saved(ratio, _SPREAD[1]) + rest * (1 - 1 / most),
        ceiling_ms=timed * _saved(ratio, _AT_MOST) + rest * (1 - 1 / most),
    )


def _saved(ratio: float | None, factor: float) -> float:
    """Share of the time that vanishes when the ratio, off by `factor`, is gained."""
    return max(0.0, 1 - 1 / max(1.0, ratio * factor)) if ratio else 0.0


def bfloat16_saves(step: Step, ops: OpProfile) -> tuple[float, float] | None:
    """What autocast to bfloat16 would take off products in float32, ms per step: with all their inputs converted each
    time, and with none (a weight is converted once a pass, what a product gives stays as it is); None where none was
    timed. What is not a product stays in float32, or gains from half the bytes: it is left out."""
    low = high = 0.0
    timed = [(t, t.bfloat16_milliseconds, t.convert_milliseconds) for t in ops.timings if t.milliseconds > 0]
    spent = _spent(step, ops, [(t.name, t.shapes, "float32") for t, half_ms, _ in timed if half_ms is not None])
    for timing, half_ms, convert_ms in timed:
        if half_ms is None or convert_ms is None:
            continue
        took = spent[timing.name, timing.shapes, "float32"]
        low += took * (1 - (half_ms + convert_ms) / timing.milliseconds)
        high += took * (1 - half_ms / timing.milliseconds)
    return (low, high) if any(half_ms is not None for _, half_ms, _ in timed) else None


# -- a limit on vector extensions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorExtensionCost:
    """What variables that limit vector extensions cost, ms per step."""

    spent_ms: float
    """In the operators that were timed."""
    saved_ms: float
    """Of that without the limit."""
    high_ms: float
    """With half as much in the operators that were not timed."""
    worst: VectorExtensionTiming
    """The operator that loses most."""

    @property
    def slower(self) -> float:
        """Timed operators with the limit over without."""
        return self.spent_ms / max(self.spent_ms - self.saved_ms, 1e-9) if self.spent_ms > 0 else 1.0


def vector_extension_cost(step: Step, ops: OpProfile, timed: VectorExtensionTimings) -> VectorExtensionCost:
    """Timed operators by their own ratio, the rest of the operators by half of the mean."""
    spent_by_op = _spent(step, ops, [(one.name, one.shapes, one.dtype) for one in timed.timings])
    spent = saved = 0.0
    worst, most = timed.timings[0], 0.0
    for timing in timed.timings:
        took = spent_by_op[timing.name, timing.shapes, timing.dtype]
        less = (
            took * (1 - timing.full_milliseconds / timing.limited_milliseconds)
            if timing.limited_milliseconds > 0
            else 0
        )
        spent, saved = spent + took, saved + less
        if less > most:
            worst, most = timing, less
    saved = max(0.0, saved)
    rest = max(0.0, in_step(step, ops, ops.self_ms_per_step) - spent)
    return VectorExtensionCost(
        spent_ms=spent,
        saved_ms=saved,
        high_ms=saved + _REST_KEEPS * rest * (saved / spent if spent > 0 else 0.0),
        worst=worst,
    )


# -- whole passes another way -----------------------------------------------------------------------------


PASSES_KEEP = (0.7, 1.1)
"""Of what whole passes saved when they were made again another way, on warm caches and with the optimizer left out. A
judgement."""


def tried(step: Step, ops: OpProfile, way: str) -> float | None:
    """Milliseconds per step that forward and backward take less that way, less than nothing where they take more; None
    where it was not tried."""
    left = None if isinstance(ops.ways, Missing) else ops.ways.share(way)
    return None if left is None else (1 - left) * (step.parts.forward + step.parts.backward)


# -- threads ----------------------------------------------------------------------------------------------


_THREADS = "threads="
"""Of the passes' other ways, those with another number of threads."""
_BESIDE = 0.1
"""CPUs that other processes keep busy, from which on passes that were timed in one go say little: a neighbour comes and
goes, and the fastest of some rounds had none."""


@dataclass(frozen=True, slots=True)
class ThreadGain:
    """The job's passes, or its largest operators, with the present number of threads and with the best that may be
    advised."""

    threads: int
    """The present number."""
    now_ms: float
    best: ThreadTiming
    saved_ms: float
    """Per step, if all of it gains what they do."""
    timings: tuple[ThreadTiming, ...] = ()
    of_passes: bool = False
    """Whole passes were timed, and not single operators."""

    @property
    def lost_ms(self) -> float:
        """What the present threads lose to each other: nothing where more of them would be faster."""
        return self.saved_ms if self.best.threads < self.threads else 0.0

    @property
    def times(self) -> float:
        """What they take now over what they take with the best."""
        return self.now_ms / self.best.milliseconds

    @property
    def fraction(self) -> float:
        """Of their time, that the best number saves."""
        return 1 - self.best.milliseconds / self.now_ms


def one_thread_takes(evidence: Evidence) -> float | Missing:
    """What the passes, or the largest operators, take on one thread, over what they take now; 1 at least."""
    gain = thread_gain(evidence)
    if isinstance(gain, Missing):
        return gain
    assert not isinstance(evidence.ops, Missing)
    timings = _timings(evidence, evidence.ops)
    alone = next((timing.milliseconds for timing in timings if timing.threads == 1), 0.0)
    return max(1.0, alone / gain.now_ms) if alone else Missing("operators were not timed on one thread")


def thread_gain(evidence: Evidence) -> ThreadGain | Missing:
    """Of more threads than now only as many as there are CPUs for on all ranks."""
    step, ops, threads = evidence.step, evidence.ops, evidence.threads
    for part in (step, ops, threads):
        if isinstance(part, Missing):
            return part
    assert not isinstance(step, Missing) and not isinstance(ops, Missing) and not isinstance(threads, Missing)
    timings = _timings(evidence, ops)
    now = next((p.milliseconds for p in timings if p.threads == threads.intra_op), 0.0)
    if not now:
        return Missing("no operator could be timed with other numbers of threads")
    cpus = math.ceil(max(1.0, evidence.machine.usable_cpus))
    most = max(threads.intra_op, cpus // max(1, evidence.job.local_ranks))
    best = min((p for p in timings if p.threads <= most), key=lambda timing: timing.milliseconds)
    of_passes = timings is not ops.thread_timings
    whole = step.parts.forward + step.parts.backward if of_passes else step.working_ms
    return ThreadGain(threads.intra_op, now, best, (1 - best.milliseconds / now) * whole, timings, of_passes)


def _timings(evidence: Evidence, ops: OpProfile) -> tuple[ThreadTiming, ...]:
    """Of whole passes, where the training process had the machine to itself as they were timed; else of operators,
    which were timed again and again beside all that ran."""
    host, loaders = evidence.host, evidence.loaders
    quiet = not isinstance(host, Missing) and host.others_cpus < _BESIDE
    workers = not isinstance(loaders, Missing) and any(loader.num_workers for loader in loaders)
    tried = () if isinstance(ops.ways, Missing) else ops.ways.times
    others = [(int(way.removeprefix(_THREADS)), ms) for way, ms in tried if way.startswith(_THREADS)]
    if isinstance(ops.ways, Missing) or isinstance(evidence.threads, Missing) or not others or not quiet or workers:
        return ops.thread_timings
    return tuple(
        ThreadTiming(count, ms) for count, ms in sorted([(evidence.threads.intra_op, ops.ways.now_ms), *others])
    )
