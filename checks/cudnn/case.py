"""What every finding about cuDNN on a GPU needs. None of it could be timed both ways in the job; each says so."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Confidence, Cost, Finding, Fix, Measurement, Severity, location, savings, severity
from perfdoctor.api.quantities import Convolution, Cudnn, Evidence, LibraryUse, Missing, Recurrent, Site, Step

from .._shared.lines import layer_place, model_call


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """What a fix must be predicted to save, in the middle of its range; below, one line of code is not worth it."""
    error_share: float = 0.25
    """A judgement: a quarter of the step for a line of code."""
    convolution_share: float = 0.50
    """Share of the step in convolutions from which on trying cuDNN's algorithms is advised."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step on a GPU, and who did its convolutions and recurrent layers."""

    evidence: Evidence
    step: Step
    use: LibraryUse
    cudnn: Cudnn
    limits: Limits

    def ms(self, some: list[Convolution] | list[Recurrent]) -> float:
        """Of the device's time, which the step need not wait for: never more than a step."""
        return min(self.step.step_ms, sum(one.ms_per_step for one in some))

    @property
    def by_cudnn(self) -> list[Convolution]:
        """Convolutions that cuDNN does."""
        return [one for one in self.use.convolutions if "cudnn" in one.kernel]

    @property
    def switched_off_at(self) -> Site | None:
        """The line that switches cuDNN off."""
        calls = () if isinstance(self.evidence.call_sites, Missing) else self.evidence.call_sites
        return next((call.site for call in calls if call.kind == "library_off" and call.detail == "cudnn"), None)

    @property
    def dearest_at(self) -> Site | None:
        """The line that calls the convolution or recurrent layer that takes longest."""
        every: tuple[Convolution | Recurrent, ...] = (*self.use.convolutions, *self.use.recurrent)
        dearest = max(every, key=lambda one: one.ms_per_step, default=None)
        known = None if dearest is None else layer_place(self.evidence, dearest.layer, dearest.module)
        return known or model_call(self.evidence)

    def finding(
        self,
        name: str,
        message: str,
        reasoning: str,
        cost_ms: float,
        fractions: tuple[float, float],
        fix: Fix,
        method: str,
        *more: Measurement,
        note: bool = False,
        at: Site | None = None,
    ) -> Finding | None:
        """None where the fix is not worth it: by the middle of what it saves, a note by the most. `at`: the line, else
        that of the dearest convolution or recurrent layer."""
        cost, limits = Cost(self.step, cost_ms), self.limits
        low, high = (fraction * cost_ms for fraction in fractions)
        saved_share = (high if note else (low + high) / 2) / self.step.step_ms
        if saved_share < limits.min_share:
            return None
        return Finding(
            id=f"PD02.{name}",
            severity=Severity.NOTE if note else severity(saved_share, limits.min_share, limits.error_share),
            confidence=Confidence.LOW if note else Confidence.MEDIUM,
            message=message,
            reasoning=reasoning,
            evidence=(*cost.measured("of device time per step"), *more),
            location=location(at or self.dearest_at),
            fix=fix,
            savings=savings(self.step, low, high, method),
        )
