"""What every finding about layers needs, and from where on one is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Cost, Measurement, Severity
from perfdoctor.api.quantities import Evidence, IndexUse, Layer, LayerProfile, Missing, Step

from .layer_table import figures


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    min_share: float = 0.10
    """A network is not rebuilt for less."""
    error_share: float = 0.50
    """A judgement: half of the step in one cause."""
    slow_share: float = 0.30
    """Share of the step from which on a layer is asked whether it computes for that long."""
    slow_factor: float = 3.0
    """Its time share over its FLOP share: layers of one network differ by two in efficiency, shapes apart."""
    slow_min_ms: float = 1.0
    """Below, a layer is cheap whatever its share: a small network has no large layers."""
    oversized_share: float = 0.50
    """Forward, backward and update. The largest layer of a sane network is often above: its width must say the same."""
    oversized_weight: float = 0.60
    """Share of the parameters or FLOPs that an oversized layer holds."""
    oversized_width: float = 4.0
    """Its longer side over the median of the other layers': a transformer's widest is 4 times its narrowest."""
    flattened_share: float = 0.20
    """The same of one that what was not pooled enters: where it took 36 % of the step, pooling saved 44 %."""
    flattened_width: float = 16.0
    """Its longer side over the median of the others', where it holds most of the model too: with 128 x 96 numbers in
    place of 96 it was 43."""
    oversized_warning: float = 0.60
    """Share of the step from which on an oversized layer is more than a note."""
    wide_factor: float = 8.0
    """Width of a feed-forward part over that of the model: four is usual, and wider ones are chosen on purpose."""
    convolution_excess: float = 2.5
    """Kernel, channels or places over what is usual: 2.8 are a kernel of 5 x 5 instead of 3 x 3."""
    convolution_flops: float = 8.0
    """Its arithmetic over that of the other convolutions (median), from which on a large kernel is more than a note:
    four times is what doubled channels cost, or a halved stride."""
    unused_outputs: float = 0.5
    """Share of a head's outputs above the highest class that any target named."""
    unused_targets: int = 50
    """Targets to have seen before their highest says something."""
    unused_chance: float = 1e-6
    """That a vocabulary sorted by frequency shows no word beyond the highest by chance: by Zipf's law the rarer half of
    50,000 words is 6 % of a text, so 220 targets are needed to call it unused, and 13 for all but 30 words."""
    unused_classes: int = 8
    """Different classes among them: data sorted by class shows one or two of them in the profiled steps. Of fewer than
    200 targets a quarter must differ."""
    head_outputs: int = 10_000
    """The guide's figure for a head of which all outputs are used, or nobody knows; it must also cost."""
    head_share: float = 0.30
    """Cut cross-entropy and the like pay from a third of the step on."""
    cell_calls: int = 8
    """Calls of a recurrent cell per step: fewer time steps gain nothing from a fused layer."""


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


def head_and_targets(case: Case) -> tuple[Layer, IndexUse] | None:
    """The `Linear` that has an output for each class of a loss, and the targets of that loss; the widest of them."""
    if isinstance(case.evidence.index_use, Missing):
        return None
    pairs = [
        (layer, use)
        for use in case.evidence.index_use
        for layer in case.profile.layers
        if use.kind == "target" and layer.kind == "Linear" and layer.weight_shape[:1] == (use.size,)
    ]
    return max(pairs, key=lambda pair: (pair[1].size, pair[0].order), default=None)


def seen_targets(targets: IndexUse) -> tuple[Measurement, ...]:
    """What was seen of the classes."""
    return (
        Measurement("highest", targets.highest, "count", "highest class among the targets"),
        Measurement("distinct", targets.distinct, "count", "different classes among the targets"),
    )
