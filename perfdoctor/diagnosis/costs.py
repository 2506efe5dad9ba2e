"""What every check writes alike: what something costs, where it is, and what its fix saves."""

from __future__ import annotations

from dataclasses import dataclass

from ..evidence.model import Missing, Site, Step
from .findings import Location, Measurement, Part, Savings, Severity


def severity(cost_share: float, warning: float, error: float) -> Severity:
    """By the share of the step that the finding costs."""
    if cost_share >= error:
        return Severity.ERROR
    return Severity.WARNING if cost_share >= warning else Severity.NOTE


def location(site: Site | Missing | None) -> Location | None:
    """Where a finding points, if the evidence knows."""
    if site is None or isinstance(site, Missing) or not site.file:
        return None
    return Location(site.file, site.line, site.function)


def savings(
    step: Step,
    low: float,
    high: float,
    method: str,
    *,
    ceiling: float | None = None,
    part: Part = Part.COMPUTE,
    lanes: int = 0,
    general: bool = False,
    first: bool = False,
    ceiling_only: bool = False,
    counted: bool = False,
) -> Savings:
    """Per-step savings in ms, put in order: no bound below zero or above the ceiling, no ceiling above the step.

    Without a `ceiling` it is the higher bound.
    """
    whole_ms = part.whole_ms(step)
    top = min(max(0.0, high if ceiling is None else ceiling), whole_ms)
    upper = min(max(0.0, high), top)
    return Savings(
        ceiling_ms=top,
        low_ms=min(max(0.0, low), upper),
        high_ms=upper,
        share=top / whole_ms if whole_ms > 0 else 0.0,
        method=method,
        part=part,
        lanes=lanes,
        general=general,
        first=first,
        ceiling_only=ceiling_only,
        counted=counted,
    )


@dataclass(frozen=True, slots=True)
class Cost:
    """What something takes of every steady step, as a finding weighs it and writes it."""

    step: Step
    ms: float
    beside_ms: float = 0.0
    """What steps that are no steady ones take on top, spread over all, where it is a part of that."""

    @property
    def share(self) -> float:
        """Of the step, with what it is weighed beside."""
        whole = self.step.step_ms + self.beside_ms
        return self.ms / whole if whole > 0 else 0.0

    def severity(self, warning: float, error: float) -> Severity:
        """By its share, against the shares from which on it is a warning and an error."""
        return severity(self.share, warning, error)

    def measured(self, label: str = "per step", of: str = "of the step") -> tuple[Measurement, Measurement]:
        """`{cost_ms}` and `{cost_share}`."""
        return milliseconds("cost_ms", self.ms, label), share("cost_share", self.share, of)

    def savings(self, fractions: tuple[float, float], method: str, part: Part = Part.COMPUTE) -> Savings:
        """Where a fix saves between those fractions of it."""
        low, high = (fraction * self.ms for fraction in fractions)
        return savings(self.step, low, high, method, ceiling=self.ms, part=part)


def milliseconds(name: str, value: float, label: str = "") -> Measurement:
    """A duration per step, or of one event as the label says."""
    return Measurement(name, value, "ms", label)


def share(name: str, value: float, label: str = "") -> Measurement:
    """A fraction of 1."""
    return Measurement(name, value, "share", label)
