"""Layers of the network: which of them take the step, and whether they should.

What it looks at
----------------
Forward and backward time, floating-point operations, parameters and shapes of every layer in the profiled steps;
the operators that make gradients of embedding tables; recurrent cells, and whole recurrent layers, that Python
calls once per time step; and, in two steps, which classes the targets of a cross-entropy name and which rows of a
table are looked up.

Why it costs time
-----------------
A layer too wide for its place costs time in proportion to its width: hidden layers of 2048 units instead of 256
made a small network 49 times slower. A layer that takes far more of the time than of the arithmetic waits for
memory or for launches. The gradient of an embedding table is as large as the table, however few rows a batch
touches, and the optimizer then updates every row. A recurrent cell in a Python loop pays for every time step
what a fused layer pays once.

An output that no target ever uses costs as much as one that is needed: its product, its place in the softmax, its
gradient and its update.

Example
-------
    self.head = nn.Linear(256, 30_000)            # for 300 classes
    self.flatten = nn.Linear(3_075_200, 512)      # straight from the feature map
    self.table = nn.Embedding(1_000_000, 64)      # a batch touches 1,000 rows
    for t in range(steps):
        h = self.cell(x[:, t], h)                 # 100 calls instead of one

How to fix
----------
Give the head as many outputs as there are classes; pool before flattening; narrow the layer, and compare the
validation loss; give large tables `sparse=True`; use `nn.LSTM` or `nn.GRU` for whole sequences; sample the softmax of
a very wide head; let what waits for memory work on less, or `torch.compile` fuse what issues several operators.

When it stays silent
--------------------
The guide's figures (layers, kernel sizes, channels, hidden sizes, parameters) are shown, never alarmed: networks
of a hundred layers are ordinary today. The largest layer of a sane network often takes more than half of the
step; it is named only if it is also many times wider than its neighbours. A head whose classes the targets use is as
wide as it has to be: a language model with a real vocabulary gets a note at most.

Limits
------
Classes in use are told from the targets of a cross-entropy in two steps, by the highest: gaps below it are not seen,
nor targets given as probabilities or to other losses. Whether a narrower layer is as good only training tells; no
figure for that is predicted. Layers are not told apart in compiled models. Operators without a known formula count no
FLOPs, so layers with hand-written kernels may seem to be bound by memory. On a GPU the times are the device's.

References
----------
- Deeplearning4j, "How to debug performance issues", step 9
- Cao et al., "Understanding performance problems in deep learning systems" (ESEC/FSE 2022)
- Wijmans et al., "Cut your losses in large-vocabulary language models": memory of wide heads
- PyTorch, documentation of `nn.Embedding(sparse=True)` and `optim.SparseAdam`
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

from perfdoctor.api.causes import compute
from perfdoctor.api.findings import (
    Check,
    Confidence,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    Severity,
    cannot_tell,
    clear,
    found,
    milliseconds,
    not_applicable,
    savings,
    share,
)
from perfdoctor.api.quantities import Cause, Evidence, Layer, LayerProfile, Missing, Step

from .._shared import time_loops
from .._shared.layer_table import LESS, POOLED, about, cost_share, figures, sure_share, update_ms
from . import embeddings, heads, memory_bound


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
    oversized_warning: float = 0.60
    """Share of the step from which on an oversized layer is more than a note."""
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
    """Calls of a recurrent cell a step: fewer time steps gain nothing from a fused layer."""
    table_touched: float = 0.10
    """Share of a table's rows in a batch, above which a sparse gradient saves little."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Embedding tables, time loops, the head, one layer too large, layers slower than their arithmetic."""
    step, layers = evidence.step, evidence.layers
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(layers, Missing):
        return cannot_tell(f"layers were not timed: {layers}")
    if not layers.layers:
        return not_applicable("the step calls no module, so there are no layers to compare")
    layers = replace(layers, stray_ms=layers.stray_ms + _thread_ms(evidence))
    case = _Case(evidence, step, layers, limits)
    special = embeddings.findings(evidence, step, layers, case.parameters, limits)
    special += time_loops.findings(evidence, step, layers, limits)
    head = heads.findings(evidence, step, layers, case.parameters, limits)
    named = {finding.evidence[0].value for finding in [*special, *head]}
    large = [f for f in case.oversized() if f.evidence[0].value not in named]
    named |= {finding.evidence[0].value for finding in large}
    slow = [f for f in memory_bound.findings(evidence, step, layers, limits) if f.evidence[0].value not in named]
    findings = [*special, *head, *large, *slow]
    shared = case.shared()
    if findings:
        return found(*findings, measurements=shared)
    return clear("the slowest of {layers:layer}, {slowest}, takes {slowest_ms} a step ({slowest_share})", *shared)


def _thread_ms(evidence: Evidence) -> float:
    """What another number of threads would save: which layers lose it to each other's waits is chance."""
    split = compute(evidence)
    return 0.0 if isinstance(split, Missing) else split.savable_ms(Cause.THREADS)


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    profile: LayerProfile
    limits: Limits

    def cost_share(self, ms: float) -> float:
        return cost_share(self.step, ms)

    def sure_share(self, ms: float) -> float:
        return sure_share(self.step, self.profile, ms)

    @property
    def parameters(self) -> int:
        """Of the whole model; of the layers listed where the optimizer's were not read."""
        precision = self.evidence.precision
        held = 0 if isinstance(precision, Missing) else sum(count for _, count in precision.parameter_dtypes)
        return max(held, sum(layer.parameters for layer in self.profile.layers))

    def shared(self) -> tuple[Measurement, ...]:
        return figures(self.profile, self.step, self.parameters)

    # -- findings -----------------------------------------------------------------------------------------

    def oversized(self) -> list[Finding]:
        """One leaf that takes most of the step, holds most of the model, and is far wider than the others."""
        weighted = [layer for layer in self.profile.layers if layer.leaf and layer.width]
        return [finding for layer in weighted if (finding := self._oversized(layer, weighted)) is not None]

    def _oversized(self, layer: Layer, weighted: list[Layer]) -> Finding | None:
        limits = self.limits
        others = [other.width for other in weighted if other is not layer]
        update = update_ms(self.step, layer, self.parameters)
        cost = layer.ms + update
        if self.sure_share(cost) < limits.oversized_share or not others or layer.kind.startswith("Embedding"):
            return None
        held = layer.parameters / max(1, self.parameters)
        usual = statistics.median(others)
        if max(held, layer.flop_share) < limits.oversized_weight or layer.width < limits.oversized_width * usual:
            return None
        # The longer side of its weight is its input: outputs come first.
        flattened = layer.kind == "Linear" and layer.weight_shape[1] > layer.weight_shape[0]
        low, high = (fraction * cost for fraction in (POOLED if flattened else LESS))
        return Finding(
            id="PD09.oversized-layer",
            severity=Severity.WARNING if self.cost_share(cost) >= limits.oversized_warning else Severity.NOTE,
            confidence=Confidence.MEDIUM,
            message="one layer, {layer}, takes {cost_ms} a step, {cost_share} of it",
            reasoning="it holds {held} of the parameters, does {flop_share} of the arithmetic, and with {width} is "
            "far wider than the other layers, whose median is {usual}",
            evidence=(
                *about(layer, self.step),
                milliseconds("update_ms", update, "optimizer, by the layer's share of the parameters"),
                share("held", held, "of the parameters"),
                Measurement("width", layer.width, "count", "its longer side"),
                Measurement("usual", usual, "count", "longer side of the other layers, median"),
            ),
            fix=Fix(
                text="Shrink what enters the layer (pool before flattening) or its width, step by step, as long as "
                "the validation loss keeps up.",
                code="features = nn.Sequential(convolutions, nn.AdaptiveAvgPool2d(4), nn.Flatten())",
                risk="A narrower layer may learn less: compare the validation loss.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=cost,
                low=low,
                high=high,
                method="the layer's time and its share of the update fall with its "
                + ("input: pooling by two saves 75 %" if flattened else "width: half of it saves 50 %")
                + ", to a few values nearly all",
            ),
        )


CHECK = Check(code="PD09", name="network", title="layers of the network", limits=Limits(), examine=examine)
