"""Modes of the job's own around its steps: each operator, or each function of torch's, goes through Python."""

from __future__ import annotations

from statistics import median

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, savings, share
from perfdoctor.api.quantities import Evidence, Missing, Mode, Modes, Step

from .limits import Limits

_OWN = (0.8, 1.3)
"""Around what was timed. Less is saved where the mode's Python ran beside other work; more where it also has hooks on
modules in the backward pass, and where operators that it takes apart are one without it."""
_DEVICE = (0.7, 1.6)
"""Around calls times what one takes longer: in the job its code is not always in the caches, which took up to 1.6 times
as long."""
_COUNTS = "FlopCounterMode"


def modes_ms(evidence: Evidence) -> float | Missing:
    """What all of them take per step; 0 where none is on."""
    modes = evidence.modes
    if isinstance(modes, Missing):
        return 0.0
    if isinstance(modes.timed, Missing):
        return modes.timed
    return evidence.felt_ms(sum(modes.ms_per_step(mode) for mode in modes.timed))


def modes_left_on(evidence: Evidence, step: Step, limits: Limits) -> tuple[Finding, ...]:
    """One for each class of modes that takes its least share of the step; a default device is one of them."""
    modes = evidence.modes
    if isinstance(modes, Missing) or isinstance(modes.timed, Missing):
        return ()
    costs = [
        (mode, Cost(step, min(evidence.felt_ms(modes.ms_per_step(mode)), step.working_ms))) for mode in modes.timed
    ]
    return tuple(
        (_default_device if mode.kind == "device" else _left_on)(modes, mode, cost, limits)
        for mode, cost in costs
        if cost.share >= limits.min_share
    )


def _measured(modes: Modes, mode: Mode, cost: Cost) -> tuple[Measurement, ...]:
    return (
        *cost.measured(),
        Measurement("mode", mode.name, "text", "the mode's class"),
        Measurement("calls", round(mode.calls_per_step), "count", "that it hears of, in a step with it on"),
        share("on", modes.share, "of the steps with it on"),
    )


def _left_on(modes: Modes, mode: Mode, cost: Cost, limits: Limits) -> Finding:
    what = "operator" if mode.kind == "dispatch" else "call of torch"
    timed = sorted(modes.share * ms for ms in mode.ms)
    return Finding(
        id="PD16.mode-left-on",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH if len(timed) > 2 and timed[-1] < 2 * median(timed) else Confidence.MEDIUM,
        message="`{mode}` is on in {on} of the steps: {cost_ms} per step ({cost_share})",
        reasoning=f"each {what} goes through its Python: {{calls}} in a step; timed there, without the work itself",
        evidence=_measured(modes, mode, cost),
        location=location(mode.site),
        fix=_counted_once() if mode.name == _COUNTS else _switched_off(mode),
        savings=savings(
            cost.step,
            _OWN[0] * cost.ms,
            _OWN[1] * cost.ms,
            "the time in the mode's own Python in a few steps of the job",
            ceiling=min(_OWN[1] * cost.ms, cost.step.working_ms),
        ),
    )


def _counted_once() -> Fix:
    return Fix(
        text="Count one step: the same shapes take the same operations in every step.",
        code="if flops is None:\n    with FlopCounterMode(display=False) as counter:\n        train_step(batch)\n"
        "    flops = counter.get_total_flops()\nelse:\n    train_step(batch)",
        risk="Where shapes vary, count one step for each.",
    )


def _switched_off(mode: Mode) -> Fix:
    return Fix(
        text="Switch it on in the steps that it is to look at, and in no others.",
        code=f"with {mode.name}() if step % 1000 == 0 else contextlib.nullcontext():\n    train_step(batch)",
        risk="What it looks for is not seen in the other steps; what it changes is not changed there.",
    )


def _default_device(modes: Modes, mode: Mode, cost: Cost, limits: Limits) -> Finding:
    return Finding(
        id="PD16.default-device",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="a default device (`torch.set_default_device`, `with torch.device(...)`) takes {cost_ms} per step "
        "({cost_share})",
        reasoning="torch asks Python about it in every call, {calls} in a step, whether or not it makes a tensor",
        evidence=_measured(modes, mode, cost),
        location=location(mode.site),
        fix=Fix(
            text="Use it to make the model, and give `device=` to what makes tensors in the loop.",
            code='with torch.device("cuda"):\n    model = Model()\nmask = torch.zeros(n, device=x.device)',
            risk="A tensor that is made without `device=` is on the CPU.",
        ),
        savings=savings(
            cost.step,
            _DEVICE[0] * cost.ms,
            _DEVICE[1] * cost.ms,
            "calls of torch per step, times what one takes longer, timed in the job's process",
            ceiling=min(_DEVICE[1] * cost.ms, cost.step.working_ms),
        ),
    )
