"""Growth because something is wrapped anew again and again, and each call goes through all of the layers."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, location
from perfdoctor.api.quantities import Wrapped

from .growth import Case, line_measured
from .kept import dearest, lines_in


def growing_wrappers(case: Case) -> Finding | None:
    """Where a layer's own lines take most of what steps take longer."""
    blamed = dearest(case.growth.wrapped, lambda one: lines_in(one.uses, case.growth.lines))
    if blamed is None:
        return None
    wrapped, lines = blamed
    return Finding(
        id="PD15.growing-wrappers",
        severity=case.severity,
        confidence=Confidence.HIGH,
        message="steps went from {early_ms} to {late_ms}: {name} wraps its own result again and again",
        reasoning="each call goes through {layers:layer}; {line} took {line_early_ms} per step at first and "
        "{line_late_ms} later" + case.rate,
        evidence=(*case.measured, *layers_measured(wrapped), *line_measured(lines[0])),
        location=location(wrapped.site or lines[0].site),
        fix=Fix(
            text="Wrap it once, before the loop; or keep what was there at first, and wrap that.",
            code="original = step  # once, before the loop\n...\n"
            f"step = {wrapped.name}(original)  # not {wrapped.name}(step)",
            risk="What the inner layers did besides, such as counting, is done once.",
        ),
        savings=case.saved,
    )


def layers_measured(wrapped: Wrapped) -> tuple[Measurement, ...]:
    """What piles up, and how fast."""
    return (
        Measurement("name", f"`{wrapped.name}`", "text", "what makes a layer"),
        Measurement("layers", wrapped.layers, "count", "layers in the end"),
        Measurement("per_step", round(wrapped.per_step, 3), "count", "layers more per step"),
    )


def wrapped_dataset(wrapped: tuple[Wrapped, ...]) -> Wrapped | None:
    """The deepest data set of data sets."""
    return next((one for one in wrapped if one.is_dataset), None)
