"""Loops over parameters: clipping, norms, averages or updates by hand, an operator or more for each tensor."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
)
from perfdoctor.api.quantities import Evidence, Missing, ParameterTiming, Step

from .._shared.lines import places
from .._shared.parameters import ParameterLoop
from .limits import Limits

_SAVED = (0.5, 0.9)
"""Of a loop over parameters whose operators were not timed: those are small where loops are slow."""
_CLIPPED = (0.7, 0.9)
"""Of clipping tensor by tensor, which took 9.7 ms for 124 small ones, and 0.65 in one call; 1.9 and 0.5 for 36."""
_READ_RARELY = 0.95
"""Of norms that are only logged: every 50 steps they cost next to nothing."""
_READ_TOGETHER = 0.8
"""Of the saving that was timed, where each step needs them: 48 % by the timing was 39 and 45 % in two loops."""
_BY_HAND = 0.6
"""Of the saving that was timed: an average or a step rule of the job's has other operators. One of 80 % by the timing
saved 68 %."""
_BELIEVED = 6.0
"""Times what such an operator took when it was timed, up to which the window is believed: out of place, on fresh pages
and cold, operators take three times as long; in a single step that was disturbed one loop took 25 times as long."""


def parameter_loop(evidence: Evidence, step: Step, loop: ParameterLoop, limits: Limits) -> Finding | None:
    """None where it costs little.

    A step rule of the job's own is never more than a note: torch's optimizers loop as well unless told otherwise.
    """
    timing = Missing("no operators") if isinstance(evidence.ops, Missing) else evidence.ops.parameters
    cost = Cost(step, evidence.felt_ms(loop.ms) * _believed(loop, timing))
    if cost.share < limits.loop_share:
        return None
    by_hand = loop.main.part == "optimizer"
    timed, low, high, method = _saved(cost, loop, timing)
    return Finding(
        id="PD17.parameter-reads" if loop.reads else "PD17.parameter-loop",
        severity=Severity.NOTE if by_hand else cost.severity(limits.loop_share, limits.error_share),
        confidence=Confidence.HIGH if timed else Confidence.MEDIUM,
        message=_what(loop) + ": {cost_ms} per step ({cost_share})",
        reasoning="it issues {ops:operator} per step, each through Python and the dispatcher, where one does "
        "for all tensors" + (", and waits for {reads:scalar}" if loop.reads else ""),
        evidence=(
            *cost.measured(),
            Measurement("tensors", round(loop.main.runs_per_step), "count", "runs of its dearest line per step"),
            Measurement("ops", round(loop.ops), "count", "operators per step"),
            *(
                (Measurement("reads", sum(read.calls_per_step for read in loop.reads), "count", "scalar reads"),)
                if loop.reads
                else ()
            ),
            *timed,
            Measurement("lines", places(loop.lines), "text", "its lines"),
        ),
        location=location(loop.main.site),
        fix=_fix(loop),
        savings=savings(
            step,
            low,
            high,
            method,
            ceiling=cost.ms,
            part=Part.COMPUTE if by_hand or loop.is_hook else Part.OTHER,
        ),
    )


def _believed(loop: ParameterLoop, timing: ParameterTiming | Missing) -> float:
    """The share of what the window saw that the same number of operators can take at most."""
    if isinstance(timing, Missing) or not timing.tensors or loop.ops_ms <= 0:
        return 1.0
    both_ms = timing.norms_ms if loop.reads else timing.averages_ms
    one_ms = both_ms / max(timing.part, 1e-9) / (2 * timing.tensors)
    return min(1.0, _BELIEVED * one_ms * loop.ops / loop.ops_ms)


def _what(loop: ParameterLoop) -> str:
    if loop.is_clipping:
        return "gradients are clipped one tensor after another"
    if loop.is_hook:
        return "a hook is called for {tensors:gradient} and reads {reads:scalar}"
    if loop.main.part == "optimizer":
        return "the optimizer's own `step` goes through {tensors:parameter} one by one"
    if loop.reads:
        return "this loop goes through {tensors:parameter} and reads {reads:scalar}"
    return "this loop goes through {tensors:parameter} one by one"


def _saved(
    cost: Cost, loop: ParameterLoop, timing: ParameterTiming | Missing
) -> tuple[tuple[Measurement, ...], float, float, str]:
    """What was timed, the range of the saving in milliseconds, and how it was predicted."""
    if loop.is_clipping:
        low, high = (fraction * cost.ms for fraction in _CLIPPED)
        return (), low, high, "the line's share of its part of the step; one call for all tensors leaves 10 to 30 %"
    if isinstance(timing, Missing):
        low, high = (fraction * cost.ms for fraction in _SAVED)
        return (), low, high, "the lines' share of their part of the step; all tensors at once leave 10 to 50 %"
    each_ms, together_ms, what = (
        (timing.norms_ms, timing.norms_together_ms, "norms of all gradients, each read")
        if loop.reads
        else (timing.averages_ms, timing.averages_together_ms, "all parameters averaged in place")
    )
    high = cost.ms * max(0.0, 1 - together_ms / each_ms) if each_ms > 0 else 0.0
    timed = (
        milliseconds("each_ms", each_ms, f"{what}, timed one by one"),
        milliseconds("together_ms", together_ms, "timed together"),
    )
    method = "the lines' share of their part of the step, by how such operators were timed one by one and together"
    if loop.reads:
        return timed, _READ_TOGETHER * high, _READ_RARELY * cost.ms, f"{method}; nearly all where they are read rarely"
    return timed, _BY_HAND * high, high, method


def _fix(loop: ParameterLoop) -> Fix:
    if loop.is_clipping:
        return Fix(
            text="Clip all gradients in one call.",
            code="torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # one call",
            risk="The limit holds for all gradients together; calls for one tensor each limit every one by itself.",
        )
    if loop.reads:
        return Fix(
            text="Compute the norms of all gradients at once"
            + (", after the backward pass," if loop.is_hook else "")
            + " and read one number, or none: clipping needs no read.",
            code="norms = torch._foreach_norm([p.grad for p in model.parameters() if p.grad is not None])\n"
            "total = torch.stack(norms).norm()  # still a tensor; read it every 50 steps\n"
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # returns it, too",
            risk="Sums are taken in another order, so the last digits of results differ.",
        )
    return Fix(
        text="Give all tensors to one operator: `torch._foreach_*` takes lists.",
        code="with torch.no_grad():\n"
        "    torch._foreach_lerp_(averages, parameters, 1 - decay)  # an average of weights\n"
        "    torch._foreach_mul_(gradients, scale)",
        risk="Lists of tensors must be made once, outside the loop, and anew where a parameter is replaced.",
    )
