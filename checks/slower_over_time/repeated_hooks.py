"""The same hook several times on one module: registered again and again, and run as often by every call."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, location, milliseconds, savings
from perfdoctor.api.quantities import Step, StepGrowth

from .growth import Limits, in_the_end

_SAVED = 0.85
"""Of what the lines of all but one of them seem to take."""


def repeated_hooks(step: Step, growth: StepGrowth, limits: Limits) -> Finding | None:
    """The dearest of them, whether steps have become longer for it or not yet."""
    if not growth.repeated_hooks:
        return None
    seen = growth.repeated_hooks[0]
    found = seen.found
    low = _SAVED * seen.ms * (1 - 1 / found.times)
    high = seen.ms * (1 - 1 / found.times)
    if found.grows:
        high = max(high, in_the_end(step, growth, seen.ms, found.times, seen.step))
    cost = Cost(step, low)
    if low < limits.min_share * step.step_ms:
        return None
    many = found.owners > 1
    return Finding(
        id="PD15.repeated-hooks",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="{function} was registered {times:time} on "
        + ("{owners:module} each" if many else "{name}")
        + ", and every call runs it as often: {cost_ms} ({cost_share})",
        reasoning="`{registered_by}` was called again with the same function and the same values, and no hook was "
        "removed; the lines of the function took {hooks_ms} per step when it was there {times:time}"
        + (", and it becomes more" if found.grows else ""),
        evidence=(
            *cost.measured("all but one of them, per step"),
            Measurement("function", found.function.function.rpartition(".")[2], "text", "the hook"),
            Measurement("registered_by", found.registered_by, "text", "what registers it"),
            Measurement("name", found.name or "all modules", "text", "what has it"),
            Measurement("owners", found.owners, "count", "modules, parameters or optimizers that have it so often"),
            Measurement("times", round(found.times), "count", "times that one of them has it"),
            milliseconds("hooks_ms", seen.ms, "in the lines of the hook, per step"),
        ),
        location=location(found.site or found.function),
        fix=Fix(
            text="Register it once, before the loop; or keep its handle, and remove it before it is registered again.",
            code=f"handle = module.{found.registered_by}(hook)\n...  # the passes that it is for\nhandle.remove()",
            risk="What it collects, it collects once: sums and counts become smaller, means stay.",
        ),
        savings=savings(
            step,
            low,
            high,
            "the lines of all but one of them, as they were timed; at most what that comes to over the whole loop",
        ),
    )
