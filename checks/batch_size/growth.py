"""How the step grows with the batch.

A step of T ms is split into what a larger batch does not change and what grows with it. With a batch F times as
large a step takes

    T(F) = fixed + F x (T - fixed)

and processes F times the samples, so throughput changes by F T / T(F) and a sample costs T(F) / F instead of T.
Fixed are the optimizer's pass over the parameters, the launches of operators, and of each product the part that two
timed sizes show not to grow (reading weights). On a GPU the host's part of the step is fixed and the kernels' grows.

The time between operators is taken for launches only up to `LAUNCH_MS` each, and not where it is a pause of 0.2 ms or
more: a wait, a simulator or a loop over samples in the forward pass is not cured by a larger batch. Lines that run once
per sample grow.

Where the job's own forward and backward could be run again on repeated inputs, their time at two sizes says what of
them is fixed, whatever they consist of.
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.causes import compute, in_step
from perfdoctor.api.quantities import WITHOUT_CPU, BatchReplay, BatchTimings, Evidence, Missing, Op, OpProfile, Step

LAUNCH_MS = 0.01
"""Host time of one operator with autograd and Python: 7 to 16 us were measured beyond the arithmetic, forward,
backward and optimizer together, with operators that other operators call counted as one with them."""
_SMALL_OP = 2.0
"""Time of a small operator inside a training step, over that of the smallest one called in a row: colder caches."""
_SURE = 0.6
"""Of what seems to grow in operators that were not timed at two sizes, at least."""
_REPLAY_ERROR = 0.1
"""Of a pass that was run again with a larger batch, more or less."""
_COARSER = 1.2
"""What grows may grow faster than the timed operators did, as their results leave the caches."""
_CONTAINERS = ("_convolution", "mkldnn_convolution", "linear", "matmul", "_mkldnn")
"""Operators whose time is that of the timed ones inside or around them."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The step of one rank, ms, in two readings: with as much fixed time as can be shown, and as may be."""

    step_ms: float
    """Without the time for which the training thread had no CPU."""
    fixed_low_ms: float
    fixed_high_ms: float
    compute_fixed_low_ms: float
    """Of those in forward and backward: what merging micro-batches saves."""
    compute_fixed_high_ms: float
    floor_ms: float
    """What making a batch takes at least, by all workers together."""
    coarser: float = _COARSER
    """How much faster what grows may grow than was timed, at most."""
    replayed: bool = False
    """Whether from the job's own passes, run again with a larger batch."""

    def at(self, factor: float) -> tuple[float, float]:
        """Step time with `factor` times the batch: (at worst, at best)."""
        worst = self.fixed_low_ms + factor * (self.step_ms - self.fixed_low_ms) * self.coarser
        best = self.fixed_high_ms + factor * (self.step_ms - self.fixed_high_ms)
        return max(worst, factor * self.floor_ms), max(best, factor * self.floor_ms)

    def gain(self, factor: float) -> tuple[float, float]:
        """Throughput over today's, with `factor` times the batch: (low, high)."""
        worst, best = self.at(factor)
        return factor * self.step_ms / worst, factor * self.step_ms / best

    def saved(self, factor: float) -> tuple[float, float]:
        """Milliseconds per step of today's size: (low, high)."""
        worst, best = self.at(factor)
        return max(0.0, self.step_ms - worst / factor), max(0.0, self.step_ms - best / factor)


def growth(evidence: Evidence, step: Step, ops: OpProfile) -> Growth | Missing:
    """From the operator window and the timings of products with other batches."""
    if ops.device_busy_ms is not None:
        return _on_device(evidence, step, ops.device_busy_ms)
    replay = _replay(step, ops)
    timings = ops.batch_timings
    parts = step.parts
    # Launching takes CPU time; what the thread waits for in the meantime (other ranks, a lock) does not shrink.
    active = min(1.0, step.cpu_ms / max(parts.compute, 1e-9))
    passes = active * (parts.forward + parts.backward)
    optimizer, other = active * parts.optimizer, 0.0
    if replay is not None:
        low, high = _replayed(step, ops, replay, passes)
        other = min(active * parts.other, LAUNCH_MS * _other_ops(evidence))
    elif isinstance(timings, Missing):
        return timings
    else:
        low, high = _fixed(evidence, step, ops, timings, max(0.0, passes - _own_code(step, ops)))
    split = compute(evidence)
    whole = step.step_ms - (0.0 if isinstance(split, Missing) else split.ms(*WITHOUT_CPU))
    return Growth(
        step_ms=whole,
        fixed_low_ms=min(whole, optimizer + low + other),
        fixed_high_ms=min(whole, optimizer + high + active * parts.other),
        compute_fixed_low_ms=low,
        compute_fixed_high_ms=high,
        floor_ms=_loading_floor(evidence),
        coarser=_COARSER if replay is None else 1.0,
        replayed=replay is not None,
    )


def _replay(step: Step, ops: OpProfile) -> BatchReplay | None:
    """Of the samples that the loader draws, where there is one: the first dimension of an input may be another."""
    found = ops.batch_replay
    if isinstance(found, Missing) or isinstance(step.samples, Missing):
        return None if isinstance(found, Missing) else found
    drawn = {round(step.samples), round(step.samples / max(1, round(step.micro_batches)))}
    return found if found.batch in drawn else None


def _replayed(step: Step, ops: OpProfile, replay: BatchReplay, passes_ms: float) -> tuple[float, float]:
    """Milliseconds of forward and backward that do not grow: (low, high). The job's own code beside its modules has
    no more room than they leave; pauses of more than twice that were the profiler's or a neighbour's."""
    called = min(passes_ms, replay.times[0][1] / ops.steps)
    own, room = _own_code(step, ops), passes_ms - called
    least = passes_ms if own > 2 * room else passes_ms - min(own, room)
    most = passes_ms if own > room else passes_ms - own
    return least * (1 - replay.growing(_REPLAY_ERROR)), most * (1 - replay.growing(-_REPLAY_ERROR))


def _other_ops(evidence: Evidence) -> float:
    """Operators per step outside forward, backward and optimizer, of lines that run once or twice."""
    lines = evidence.hot_lines
    return (
        0.0
        if isinstance(lines, Missing)
        else sum(line.ops_per_step for line in lines if line.part == "other" and line.runs_per_step <= 2)
    )


def _fixed(
    evidence: Evidence, step: Step, ops: OpProfile, timings: BatchTimings, computing: float
) -> tuple[float, float]:
    """Milliseconds of forward and backward that do not grow, by what each kind of operator does: (low, high)."""
    products = sum(timing.calls_per_step * timing.milliseconds for timing in timings.ops)
    growing = sum(timing.calls_per_step * timing.growing_milliseconds for timing in timings.ops)
    rest = _rest_growing(step, ops, timings, _weights(evidence))
    shown = max(0.0, products - growing)
    launches = LAUNCH_MS * max(0.0, ops.ops_per_step - _looped(evidence, step))
    low = max(0.0, min(computing - growing - rest, launches + shown))
    return low, max(low, computing - growing - _SURE * rest)


def _on_device(evidence: Evidence, step: Step, busy_ms: float) -> Growth:
    """The host's work on the step stays; the kernels' grows."""
    waiting = step.parts.input_wait + step.parts.gc + step.parts.checkpoint
    fixed = max(0.0, step.step_ms - waiting - busy_ms)
    return Growth(step.step_ms, fixed, fixed, fixed, fixed, _loading_floor(evidence))


def _weights(evidence: Evidence) -> frozenset[str]:
    """Shapes of weights, as operators show them."""
    layers = evidence.layers
    if isinstance(layers, Missing):
        return frozenset()
    return frozenset(str(list(layer.weight_shape)) for layer in layers.layers if layer.weight_shape)


def _rest_growing(step: Step, ops: OpProfile, timings: BatchTimings, weights: frozenset[str]) -> float:
    """What may grow in operators that were not timed: products like their kind, others beyond their launch."""
    families: dict[str, tuple[float, float]] = {}
    for timing in timings.ops:
        whole, part = families.get(timing.name, (0.0, 0.0))
        calls = timing.calls_per_step
        families[timing.name] = (whole + calls * timing.milliseconds, part + calls * timing.growing_milliseconds)
    timed = {(timing.name, timing.shapes) for timing in timings.ops}
    profiled = 0.0
    for op in ops.ops:
        kind = op.name.removesuffix("_backward")
        kind = op.name if op.name in families else kind
        if (op.name, op.shapes) in timed or op.name.startswith(_CONTAINERS) or _is_update(op, weights):
            continue
        if kind in families:
            whole, part = families[kind]
            profiled += op.total_ms_per_step * (part / whole if whole > 0 else 1.0)
        else:
            profiled += max(0.0, op.self_ms_per_step - _SMALL_OP * timings.floor_ms * op.calls_per_step)
    return in_step(step, ops, profiled)


def _is_update(op: Op, weights: frozenset[str]) -> bool:
    """Whether it works on parameters alone: in place, fused for the purpose, or on nothing but their shapes."""
    if (op.name.endswith("_") and not op.name.endswith("__")) or op.name.startswith(("_foreach", "_fused_")):
        return True
    return bool(op.shapes) and all(shape in weights for shape in op.shapes.replace("] [", "]|[").split("|"))


def _own_code(step: Step, ops: OpProfile) -> float:
    """Milliseconds of forward and backward in which the job runs code of its own between operators, at least: of the
    long pauses, what the rest of the step has no room for."""
    return max(0.0, ops.pauses_ms - (step.step_ms - step.parts.forward - step.parts.backward))


def _looped(evidence: Evidence, step: Step) -> float:
    """Operators per step from lines that run about once per sample: with more samples there are more of them."""
    lines = evidence.hot_lines
    if isinstance(lines, Missing) or isinstance(step.samples, Missing):
        return 0.0
    per_sample = max(8.0, step.samples / 2)
    return sum(line.ops_per_step for line in lines if line.runs_per_step >= per_sample)


def _loading_floor(evidence: Evidence) -> float:
    """Making a step's batches takes this long even if it is hidden: workers only divide it."""
    if isinstance(evidence.loaders, Missing):
        return 0.0
    return sum(
        loader.fetch.total_ms * loader.steady_batches_per_step / max(1, loader.num_workers)
        for loader in evidence.loaders
        if not isinstance(loader.fetch, Missing)
    )
