"""What every finding about layers needs."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Cost, Measurement, Severity
from perfdoctor.api.quantities import Evidence, Layer, LayerProfile, Missing, Step

from .layer_table import figures
from .limits import Limits


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step, and the layers that it calls."""

    evidence: Evidence
    step: Step
    profile: LayerProfile
    limits: Limits

    @property
    def parameters(self) -> int:
        """Of the whole model; of the layers listed where the optimizer's were not read."""
        precision = self.evidence.precision
        held = 0 if isinstance(precision, Missing) else sum(count for _, count in precision.parameter_dtypes)
        return max(held, sum(layer.parameters for layer in self.profile.layers))

    def sure_share(self, ms: float) -> float:
        """Of the step, even if waits for a CPU fell into it."""
        return Cost(self.step, max(0.0, ms - self.profile.stray_ms)).share

    def update_ms(self, layer: Layer) -> float:
        """Of the optimizer's time, by the layer's share of all parameters; 0 where their number is not known."""
        every = self.parameters
        return self.step.parts.optimizer * min(1.0, layer.parameters / every) if every else 0.0

    def severity(self, cost: Cost) -> Severity:
        """By the share of the step."""
        return cost.severity(self.limits.min_share, self.limits.error_share)

    def shared(self) -> tuple[Measurement, ...]:
        """What every outcome shows."""
        return figures(self.profile, self.step, self.parameters)
