"""What every finding about data types needs, and from where on one is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Cost, Measurement, Severity, share
from perfdoctor.api.quantities import Evidence, OpProfile, Precision, Step


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """A conversion touches every file of a project; less is not worth that."""
    error_share: float = 0.25
    """A judgement: a quarter of the step is worth a change of type even where it must be tested."""
    scaler_min_share: float = 0.01
    """A gradient scaler that does nothing is one line to remove."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step, its operators, and the types that they compute in."""

    evidence: Evidence
    step: Step
    ops: OpProfile
    precision: Precision
    limits: Limits

    def severity(self, cost: Cost) -> Severity:
        """By the share of the step."""
        return cost.severity(self.limits.min_share, self.limits.error_share)

    def shared(self) -> tuple[Measurement, ...]:
        """What every outcome shows."""
        total = max(self.ops.self_ms_per_step, 1e-9)
        half = self.ops.self_ms("float16") + self.ops.self_ms("bfloat16")
        return (
            share("float32_share", self.ops.self_ms("float32") / total, "operator time in float32"),
            share("float64_share", self.ops.self_ms("float64") / total, "operator time in float64"),
            share("half_share", half / total, "operator time in half precision"),
            self.parameters,
        )

    @property
    def parameters(self) -> Measurement:
        """The types of most of them."""
        kinds = ", ".join(dtype for dtype, _ in self.precision.parameter_dtypes[:2])
        return Measurement("parameters", kinds or "unknown", "text", "parameters")

    @property
    def is_double(self) -> bool:
        """Whether any parameters are float64."""
        return any(kind == "float64" for kind, _ in self.precision.parameter_dtypes)
