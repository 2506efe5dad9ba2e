"""Growth because of hooks that are registered in every step and never removed."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import GrowingHooks

from .growth import Case, line_measured
from .kept import dearest, lines_of

_ON_ALL = "all modules"
_CALLED_MORE_OFTEN = 0.25
"""Of the growth, in lines of hooks: that these run ever more often is certain, and what they make faults in pages
elsewhere. In one launch of several the pages were blamed for hooks."""


def growing_hooks(case: Case) -> Finding | None:
    """Where the hook's own lines, or those that call what has the hooks, take much of what steps take longer."""
    blamed = dearest(case.growth.hooks, lambda hooks: lines_of(hooks, case.growth.lines), _CALLED_MORE_OFTEN)
    if blamed is None:
        return None
    hooks, lines = blamed
    several = hooks.owners > 1
    return Finding(
        id="PD15.growing-hooks",
        severity=case.severity,
        confidence=Confidence.HIGH,
        message="steps went from {early_ms} to {late_ms}: "
        + ("{per_step:hook} more per step on " if hooks.per_step >= 1 else "a hook more every {every:step} on ")
        + ("{owners:object}, {name} among them" if several else "{name}"),
        reasoning="`{registered_by}` is called again and again, and no hook is removed: there were {hooks:hook} in the "
        "end, and every call runs them all; {line} took {line_early_ms} per step at first and {line_late_ms} later"
        + case.rate,
        evidence=(
            *case.measured,
            Measurement("registered_by", hooks.registered_by, "text", "what registers them"),
            Measurement("name", hooks.name or _ON_ALL, "text", "what has the hooks"),
            Measurement("owners", hooks.owners, "count", "modules, parameters or optimizers that have some"),
            Measurement("hooks", hooks.hooks, "count", "hooks in the end"),
            Measurement("per_step", round(hooks.per_step, 2), "count", "hooks more per step"),
            Measurement("every", round(1 / hooks.per_step), "count", "steps for one more"),
            *line_measured(lines[0]),
        ),
        location=location(hooks.site or lines[0].site),
        fix=_fix(hooks),
        savings=case.saved,
    )


def _fix(hooks: GrowingHooks) -> Fix:
    owner = "torch.nn.modules.module" if not hooks.name else hooks.name if _is_plain(hooks.name) else "module"
    return Fix(
        text="Register a hook once, before the loop; or keep its handle, and remove it when the step has been taken.",
        code=f"handle = {owner}.{hooks.registered_by}(hook)\n...  # the passes that it is for\nhandle.remove()",
        risk="What older hooks wrote, nobody writes any more; results that depend on all of them change.",
    )


def _is_plain(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))
