"""What a window saw, or why nothing can be said of it; operators, libraries and layers joined with what was timed after
it, in an ordinary step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import TypeVar

from ..recording.kept_trace import KeptTrace
from ..recording.lines import IndexUse, LinesWindow, SameResultsWindow, SitesWindow
from ..recording.locks import LockWaits
from ..recording.model import ProcessRecording
from ..recording.operators import NO_COUNTERS, Counters, OpsWindow
from ..recording.repeats import (
    AsideWork,
    DiscardedGradients,
    Equivalent,
    PassAgain,
    RepeatedWork,
    RepeatsWindow,
    SampleWork,
    SingleDerivatives,
    SubnormalNumbers,
    WeightedWork,
)
from ..recording.timings import CALLS_NOT_TRACED, NOT_TRACED, PassWays, ThreadRound, TracingTiming
from .model import LayerProfile, LibraryUse, Missing, OpProfile, Step, ThreadTiming, UnusedGradients

T = TypeVar("T")
_TIMED_APART = ("taken-apart",)
"""Kinds of operators whose times are not those of the steps that were watched, in which this very work takes longer."""
_MOST_LONGER = 10.0
"""Times that what grows is taken to be in the mean step: it may begin anew with each epoch."""


def operators(process: ProcessRecording) -> OpsWindow | Missing:
    """The operator window."""
    return _seen(process.ops, "operator", 20)


def call_sites(process: ProcessRecording) -> SitesWindow | Missing:
    """The call-site window."""
    return _seen(process.call_sites, "call-site", 20)


def lines(process: ProcessRecording) -> LinesWindow | Missing:
    """The line window."""
    return _seen(process.code_lines, "line", 30)


def counters(process: ProcessRecording) -> Counters | Missing:
    """The counters window, which opens only for a gate."""
    return NO_COUNTERS if process.counters is None else _seen(process.counters, "counters", 0)


def index_use(process: ProcessRecording) -> tuple[IndexUse, ...] | Missing:
    """Empty where no loss took class numbers as targets and no table was looked up."""
    window = call_sites(process)
    return window if isinstance(window, Missing) else window.indices


def profile(process: ProcessRecording, step: Step | Missing) -> OpProfile | Missing:
    """Operators, with all timings of them."""
    window = operators(process)
    if isinstance(window, Missing):
        return window
    found = replace(window.profile, thread_timings=_thread_timings(process.thread_rounds))
    timed = process.timings
    if timed is None:
        return found
    return replace(
        found,
        timings=timed.dtype,
        batch_timings=timed.batch,
        batch_replay=timed.passes,
        update=timed.update,
        parameters=timed.parameters,
        frozen=timed.frozen,
        ways=_undisturbed(timed.ways, step),
        in_parts=timed.in_parts,
        in_turn=timed.in_turn,
        repeated_rows=timed.repeated_rows,
        siblings=timed.siblings,
        experts=timed.experts,
        pools=timed.pools,
        convolution_timings=timed.convolutions,
        groups_timings=timed.groups,
    )


_DISTURBED = 2.5
"""Times what both passes take in the steps, from which on passes that were made again say nothing: beside three seconds
of another program two threads took 377 ms for what took them 82 in the steps, and one 134. A batch of long sequences
takes up to twice what batches do on average."""


def _undisturbed(ways: PassWays | Missing, step: Step | Missing) -> PassWays | Missing:
    if isinstance(ways, Missing) or isinstance(step, Missing):
        return ways
    times = ways.now_ms / max(step.parts.forward + step.parts.backward, 1e-9)
    if times <= _DISTURBED:
        return ways
    return Missing(f"made again after the last step, the passes took {times:.1f} times as long as in it")


def _thread_timings(rounds: Sequence[ThreadRound]) -> tuple[ThreadTiming, ...]:
    """Medians over the rounds that timed every number of threads. They lie seconds apart, and neighbours come and go:
    in two rounds of seven two threads took 80 ms for what they did in 4 to 5 in the others, where one took 7."""
    times = [{timing.threads: timing.milliseconds for timing in one.timings} for one in rounds]
    counts = sorted({threads for one in times for threads in one})
    whole = [one for one in times if len(one) == len(counts)]
    return tuple(
        ThreadTiming(threads, median(one[threads] for one in whole), len(whole)) for threads in counts if whole
    )


def library_use(process: ProcessRecording) -> LibraryUse | Missing:
    """Which library did what, with the timings of it."""
    window = operators(process)
    found = window if isinstance(window, Missing) else window.library_use
    if isinstance(found, Missing) or process.timings is None:
        return found
    timed = process.timings
    return replace(found, recurrent=timed.recurrent, attention=timed.attention, layout_timings=timed.layout)


def layers(process: ProcessRecording, step: Step | Missing) -> LayerProfile | Missing:
    """The modules. The profiler makes work longer: they never fill more than an ordinary step has room for."""
    window = operators(process)
    found = window if isinstance(window, Missing) else window.layers
    if isinstance(found, Missing) or isinstance(step, Missing) or found.total_ms <= 0:
        return found
    unused = _unused(process, found)
    scale = min(1.0, (step.step_ms - step.parts.input_wait - step.parts.gc) / found.total_ms)
    return replace(
        found,
        layers=tuple(
            replace(layer, forward_ms=layer.forward_ms * scale, backward_ms=layer.backward_ms * scale)
            for layer in found.layers
        ),
        total_ms=found.total_ms * scale,
        stray_ms=found.stray_ms * scale,
        unused=unused
        if isinstance(unused, Missing)
        else replace(
            unused,
            ahead_forward_ms=unused.ahead_forward_ms * scale,
            ahead_backward_ms=unused.ahead_backward_ms * scale,
            behind_backward_ms=unused.behind_backward_ms * scale,
        ),
    )


def _unused(process: ProcessRecording, found: LayerProfile) -> UnusedGradients | Missing:
    """Gradients without an optimizer, unless the job was seen to use them, or nobody looked whether it does."""
    reads = process.gradient_reads
    if isinstance(found.unused, Missing):
        return found.unused
    if reads is None or isinstance(reads, Missing):
        return Missing("whether the job uses gradients of parameters that are in no optimizer was not seen")
    if reads.updated:
        return Missing("the job updates parameters without an optimizer")
    if reads.reads_per_step:
        where = f" ({reads.read_at})" if reads.read_at is not None else ""
        return Missing(f"the job uses gradients of parameters that are in no optimizer{where}")
    return replace(found.unused, in_norm=reads.norms_per_step > 0)


def discarded(process: ProcessRecording, step: Step | Missing) -> tuple[DiscardedGradients, ...] | Missing:
    """Gradients that were zeroed before anybody read them, the dearest first; the passes that were followed never take
    longer than an ordinary step has room for. Empty where no pass may have made any."""
    window, seen = operators(process), process.gradient_reads
    if isinstance(window, Missing):
        return window
    if seen is None:
        return ()
    if isinstance(seen, Missing):
        return seen
    if isinstance(step, Missing):
        return step
    on_device = window.profile.device_busy_ms is not None
    room_ms = step.step_ms - step.parts.input_wait - step.parts.gc if on_device else step.parts.backward
    scale = min(1.0, room_ms / seen.passes_ms) if seen.passes_ms > 0 else 1.0
    scaled = (replace(one, whole_ms=one.whole_ms * scale, part_ms=one.part_ms * scale) for one in seen.discarded)
    return tuple(sorted(scaled, key=lambda one: -(2 * one.whole_ms + one.part_ms)))


def repeated(process: ProcessRecording, step: Step | Missing) -> tuple[RepeatedWork, ...] | Missing:
    """Work that was done before, the dearest first; operators never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    return repeated_in(window.rows, scale)


def repeated_in(found: Sequence[RepeatedWork], scale: float, often: float = 1.0) -> tuple[RepeatedWork, ...]:
    """As it is where all takes `scale` times what it took when it was watched, and is done so `often` in a step."""
    scale *= often
    return tuple(
        replace(
            one,
            ops_per_step=one.ops_per_step * often,
            forward_ms=one.forward_ms * scale,
            backward_ms=one.backward_ms * scale,
        )
        for one in found
    )


def aside(
    process: ProcessRecording, step: Step | Missing, which: Callable[[RepeatsWindow], tuple[AsideWork, ...]]
) -> tuple[AsideWork, ...] | Missing:
    """Work of no use to training, the dearest first; operators never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    longer = 1.0
    if len(process.steps) and window.first_step:
        longer = min(_MOST_LONGER, max(1.0, float(process.steps["step"][-1]) / 2 / window.first_step))
    return tuple(
        replace(one, forward_ms=one.forward_ms * scale, later_ms=one.forward_ms * scale * longer * one.grows)
        for one in which(window)
    )


def weighted(process: ProcessRecording, step: Step | Missing) -> tuple[WeightedWork, ...] | Missing:
    """What is multiplied by 0, the dearest first; operators never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    return tuple(
        replace(one, forward_ms=one.forward_ms * scale, backward_ms=one.backward_ms * scale) for one in window.weighted
    )


def of_samples(process: ProcessRecording, step: Step | Missing) -> SampleWork | Missing | None:
    """What every epoch computes again; operators never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing) or process.of_samples is None:
        return seen if isinstance(seen, Missing) else None
    _, scale = seen
    lines = tuple(replace(one, forward_ms=one.forward_ms * scale) for one in process.of_samples.lines)
    return replace(process.of_samples, lines=lines)


def equivalents(process: ProcessRecording, step: Step | Missing) -> tuple[Equivalent, ...] | Missing:
    """Operators that others could stand for; they never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    return equivalents_in(window.equivalents, scale)


def equivalents_in(found: Sequence[Equivalent], scale: float, often: float = 1.0) -> tuple[Equivalent, ...]:
    """As they are where all takes `scale` times what it took when it was watched, and is done so `often` in a step."""
    return tuple(_equivalent(one, often * (1.0 if one.kind in _TIMED_APART else scale), often) for one in found)


def _equivalent(one: Equivalent, scale: float, often: float) -> Equivalent:
    return replace(
        one,
        times_per_step=one.times_per_step * often,
        forward_ms=one.forward_ms * scale,
        backward_ms=one.backward_ms * scale,
        other_forward_ms=one.other_forward_ms * scale,
        other_backward_ms=one.other_backward_ms * scale,
    )


def derivatives(process: ProcessRecording) -> tuple[SingleDerivatives, ...] | Missing:
    """Derivatives that are asked for one after the other, the dearest first."""
    seen = _seen(process.repeats, "repeated-work", 40)
    return seen if isinstance(seen, Missing) else seen.derivatives


def passes_again(process: ProcessRecording, step: Step | Missing) -> tuple[PassAgain, ...] | Missing:
    """Backward passes through a graph again; operators never fill more than an ordinary step has room for."""
    seen = in_a_step(process, step)
    if isinstance(seen, Missing):
        return seen
    window, scale = seen
    return tuple(replace(one, ms_per_step=one.ms_per_step * scale) for one in window.passes_again)


def in_a_step(process: ProcessRecording, step: Step | Missing) -> tuple[RepeatsWindow, float] | Missing:
    """The window of repeated work, and what its operators take in an ordinary step, as a share."""
    seen = _seen(process.repeats, "repeated-work", 40)
    if isinstance(seen, Missing):
        return seen
    return step if isinstance(step, Missing) else (seen, _room(step, seen.ops_ms))


def _room(step: Step, ops_ms: float) -> float:
    """What operators that took this long when they were watched take in an ordinary step, as a share."""
    room_ms = step.step_ms - step.parts.input_wait - step.parts.gc
    return min(1.0, room_ms / ops_ms) if ops_ms > 0 else 1.0


def subnormals(process: ProcessRecording, step: Step | Missing) -> SubnormalNumbers | Missing | None:
    """What they cost; None where operators met hardly any, so that nobody looked closer."""
    found = process.subnormals
    if found is None:
        seen = _seen(process.repeats, "repeated-work", 40)
        if isinstance(seen, Missing):
            return seen
        return Missing("the job ended before what subnormal numbers cost was timed") if seen.asks else None
    if isinstance(found, Missing):
        return found
    if isinstance(step, Missing):
        return step
    scale = _room(step, found.ops_ms)
    return replace(
        found,
        ops_ms=found.ops_ms * scale,
        met_ms=found.met_ms * scale,
        forward_ms=found.forward_ms * scale,
        backward_ms=found.backward_ms * scale,
        optimizer_ms=found.optimizer_ms * scale,
    )


def lock_waits(process: ProcessRecording) -> LockWaits | Missing:
    """Who waited for locks of the job's own."""
    return _seen(process.lock_waits, "lock", 50)


def same_results(process: ProcessRecording) -> SameResultsWindow | Missing:
    """Functions that are called again for what they have returned before."""
    return _seen(process.same_results, "same-results", 60)


def tracing(process: ProcessRecording) -> TracingTiming | Missing:
    """What `tracemalloc` costs."""
    timing, settings = process.tracing or NOT_TRACED, process.settings
    if isinstance(timing, Missing) or settings is None:
        return timing
    return replace(timing, started_at=settings.traced_at)


def traced_calls(process: ProcessRecording) -> TracingTiming | Missing:
    """What a function costs that Python calls for each line or call."""
    return process.traced_calls or CALLS_NOT_TRACED


def trace(process: ProcessRecording) -> KeptTrace | Missing:
    """The operator window's own trace; missing where nobody asked for it too."""
    window = operators(process)
    return window if isinstance(window, Missing) else window.trace


def _seen(window: T | Missing | None, name: str, steps: int) -> T | Missing:
    if window is None:
        return Missing(f"the {name} window was not reached", f"let the job run for {steps} steps or more")
    if isinstance(window, Missing):
        return Missing(f"the {name} window could not open: {window.reason}")
    return window
