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
a very wide head; let `torch.compile` fuse what waits for memory.

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

import math
import statistics
from dataclasses import dataclass, replace

from perfdoctor.api import (
    Cause,
    Check,
    Confidence,
    Evidence,
    Finding,
    Fix,
    Layer,
    LayerProfile,
    Measurement,
    Missing,
    OpProfile,
    Outcome,
    Part,
    Severity,
    Site,
    Step,
    cannot_tell,
    clear,
    compute,
    found,
    in_step,
    location,
    milliseconds,
    not_applicable,
    savings,
    severity,
    share,
)

from . import _heads
from ._layer_table import cost_share, figures, shape, sure_share, title
from ._wording import in_words_of


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
    """The largest layer of a sane network is often above, so its width must say the same."""
    oversized_weight: float = 0.60
    """Share of the parameters or FLOPs that an oversized layer holds."""
    oversized_width: float = 4.0
    """Its longer side over the median of the other layers': a transformer's widest is 4 times its narrowest."""
    oversized_warning: float = 0.60
    """Share of the step from which on an oversized layer is more than a note."""
    unused_outputs: float = 0.5
    """Share of a head's outputs above the highest class that any target named. A vocabulary sorted by frequency shows
    words of its rarer half within a few hundred of them: by Zipf's law they are 6 % of a text of 50,000 words."""
    unused_targets: int = 200
    """Targets to have seen before their highest says something."""
    unused_classes: int = 8
    """Different classes among them: data sorted by class shows one or two of them in the profiled steps."""
    head_outputs: int = 10_000
    """The guide's figure for a head of which all outputs are used, or nobody knows; it must also cost."""
    head_share: float = 0.30
    """Cut cross-entropy and the like pay from a third of the step on."""
    cell_calls: int = 8
    """Calls of a recurrent cell a step: fewer time steps gain nothing from a fused layer."""
    table_touched: float = 0.10
    """Share of a table's rows in a batch, above which a sparse gradient saves little."""


_SLOW_SAVES = (0.2, 0.8)
"""Of the time beyond a layer's FLOP share: fusing what is bound by memory or launches saves a fifth to four."""
_NARROWER = (0.4, 0.8)
"""Half the width saves half of a layer's time, a quarter three quarters; less what it costs to launch at all."""
_SPARSE_SAVES = (0.5, 0.95)
"""Only the rows of a batch are touched; sorting and hashing them costs something again."""
_FUSED_SAVES = (0.3, 0.8)
"""An `nn.LSTM` of the same sizes computes the input's products at once and runs no Python per time step."""
_AS_OFTEN = 0.2
"""How far apart a line's runs, which are estimated, and a cell's calls, which are counted, may be."""
_CELLS = {"LSTMCell": "LSTM", "GRUCell": "GRU", "RNNCell": "RNN"}
_WHOLE = frozenset(_CELLS.values())
"""Layers for whole sequences, which a loop may call with one time step each."""
_UNCOUNTED = ("Embedding", "EmbeddingBag", *_CELLS)
"""Kinds with a finding of their own."""


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
    special = [*case.dense_embeddings(), *case.time_loops()]
    head = _heads.findings(evidence, step, layers, case.parameters, limits)
    named = {finding.evidence[0].value for finding in [*special, *head]}
    large = [f for f in case.oversized() if f.evidence[0].value not in named]
    named |= {finding.evidence[0].value for finding in large}
    slow = [f for f in case.slow() if f.evidence[0].value not in named]
    findings = [*special, *head, *large, *slow]
    shared = case.shared()
    if findings:
        return found(*findings, measurements=shared)
    return clear("the slowest of {layers} layers, {slowest}, takes {slowest_ms} a step ({slowest_share})", *shared)


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

    def _about(self, layer: Layer, cost_ms: float) -> tuple[Measurement, ...]:
        """The first is what tells layers apart."""
        return (
            Measurement("layer", title(layer), "text"),
            milliseconds("cost_ms", cost_ms, "its forward and backward"),
            share("cost_share", self.cost_share(cost_ms), "of the step"),
            milliseconds("forward_ms", layer.forward_ms, "forward"),
            milliseconds("backward_ms", layer.backward_ms, "backward"),
            share("time_share", layer.time_share, "of the profiled time"),
            share("flop_share", layer.flop_share, "of the FLOPs"),
            Measurement("weight", shape(layer.weight_shape) or "none", "text", "weight"),
            Measurement("weights", layer.parameters, "count", "parameters"),
        )

    # -- findings -----------------------------------------------------------------------------------------

    def dense_embeddings(self) -> list[Finding]:
        """Tables whose dense gradients, and the optimizer's pass over them, cost time that few rows need."""
        ops = self.evidence.ops
        tables = [layer for layer in self.profile.layers if layer.kind.startswith("Embedding") and layer.weight_shape]
        if isinstance(ops, Missing) or not tables or not self.parameters:
            return []
        gradient = _op_ms(ops, "embedding_dense_backward", self.step)
        every = sum(table.parameters for table in tables)
        return [
            finding
            for table in tables
            if (finding := self._dense(table, gradient * table.parameters / max(1, every))) is not None
        ]

    def _dense(self, table: Layer, gradient_ms: float) -> Finding | None:
        rows = table.weight_shape[0]
        touched = self._touched(table)
        update = self.step.parts.optimizer * min(1.0, table.parameters / self.parameters)
        cost = gradient_ms + update
        if not gradient_ms or touched > self.limits.table_touched * rows:
            return None
        if self.sure_share(cost) < self.limits.min_share:
            return None
        low, high = (fraction * cost for fraction in _SPARSE_SAVES)
        return Finding(
            id="PD09.dense-embedding-gradient",
            severity=severity(self.cost_share(cost), self.limits.min_share, self.limits.error_share),
            confidence=Confidence.HIGH,
            message="the gradient of {layer} fills the whole table for the few rows of a batch: {dense_ms} a step "
            "with the optimizer's pass over it, {dense_share}",
            reasoning="a batch touches at most {touched} of {rows} rows, and the gradient and the update are as large "
            "as the table",
            evidence=(
                Measurement("layer", title(table), "text"),
                milliseconds("dense_ms", cost, "gradient and update per step"),
                share("dense_share", self.cost_share(cost), "of the step"),
                milliseconds("gradient_ms", gradient_ms, "making the dense gradient"),
                milliseconds("update_ms", update, "optimizer, by the table's share of the parameters"),
                Measurement("touched", round(touched), "count", "rows looked up per step"),
                Measurement("rows", rows, "count", "rows"),
                Measurement("weights", table.parameters, "count", "parameters"),
            ),
            fix=Fix(
                text="Give the table sparse gradients, and an optimizer that takes them (SGD, Adagrad, SparseAdam) "
                "for it alone.",
                code="table = nn.Embedding(rows, width, sparse=True)\n"
                "sparse = torch.optim.SparseAdam(table.parameters())\n"
                "dense = torch.optim.AdamW(others)  # all other parameters",
                risk="Rows that a batch does not touch are not updated: momentum and weight decay act on them later "
                "or not at all, so the training differs.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=cost,
                low=low,
                high=high,
                method="the measured gradient, and the table's share of the optimizer's time; 50 to 95 % of them",
            ),
        )

    def _touched(self, table: Layer) -> float:
        """Rows of a table that a step uses, at most: as many as were different, or as there were lookups."""
        rows = float(table.weight_shape[0])
        lookups = math.prod(table.input_shape) * table.calls_per_step if table.input_shape else rows
        seen = self.evidence.index_use
        if isinstance(seen, Missing):
            return lookups
        different = [one.distinct for one in seen if (one.kind, one.size, one.width) == ("lookup", *table.weight_shape)]
        return min(lookups, max(different, default=rows))

    def time_loops(self) -> list[Finding]:
        """Recurrent cells that Python calls once per time step."""
        found_loops = []
        for cell in self.profile.layers:
            fused = self._fused(cell)
            cost_share = self.cost_share(cell.ms)
            if (
                fused is None
                or cell.calls_per_step < self.limits.cell_calls
                or self.sure_share(cell.ms) < self.limits.min_share
            ):
                continue
            low, high = (fraction * cell.ms for fraction in _FUSED_SAVES)
            found_loops.append(
                Finding(
                    id="PD09.time-loop",
                    severity=severity(cost_share, self.limits.min_share, self.limits.error_share),
                    confidence=Confidence.MEDIUM,
                    message="Python calls {layer} {calls} times a step, once per time step: {cost_ms}, {cost_share}",
                    reasoning="each call issues small operators of its own; a fused layer runs the whole sequence in "
                    "one, and computes the input's products for all time steps at once",
                    evidence=(
                        *self._about(cell, cell.ms),
                        Measurement("calls", cell.calls_per_step, "count", "calls per step"),
                    ),
                    location=location(self._loop_line(cell)),
                    fix=Fix(
                        text=f"Run whole sequences through `nn.{fused}`; if steps feed back into their input, shorten "
                        "the sequence that is trained at once.",
                        code=f"self.rnn = nn.{fused}(inputs, hidden, batch_first=True)\noutput, state = self.rnn(x)",
                        risk="Sums are taken in another order, so the last digits of results may differ.",
                    ),
                    savings=savings(
                        self.step,
                        Part.COMPUTE,
                        ceiling=cell.ms,
                        low=low,
                        high=high,
                        method="the measured time of the cell; a fused layer saves 30 to 80 % of it",
                    ),
                )
            )
        return found_loops

    def _fused(self, cell: Layer) -> str | None:
        """The layer that would take the whole sequence; None for what is no cell, and is not used like one."""
        if cell.kind not in _WHOLE:
            return _CELLS.get(cell.kind)
        # One time step: sequences have two dimensions, or three with a batch before or after the time. Where the whole
        # network is called as often, each call is a batch of one, or waits for what the last one led to.
        outer = max((layer.calls_per_step for layer in self.profile.layers if not layer.name), default=1.0)
        passes = outer if cell.name else 1.0
        one_step = len(cell.input_shape) > 1 and 1 in cell.input_shape[:-1]
        return cell.kind if one_step and cell.calls_per_step >= self.limits.cell_calls * max(1.0, passes) else None

    def _loop_line(self, cell: Layer) -> Site | None:
        """The line that issues most in the forward pass, in a cell or running as often as it is called."""
        lines = self.evidence.hot_lines
        if isinstance(lines, Missing):
            return None
        forward = [line for line in lines if line.part == "forward"]
        as_often = [
            line for line in forward if abs(line.runs_per_step - cell.calls_per_step) <= _AS_OFTEN * cell.calls_per_step
        ]
        of_cells = [line for line in forward if "rnn.py" in line.site.via] or as_often
        return max(of_cells, key=lambda line: line.ops_per_step).site if of_cells else None

    def oversized(self) -> list[Finding]:
        """One leaf that takes most of the step, holds most of the model, and is far wider than the others."""
        weighted = [layer for layer in self.profile.layers if layer.leaf and layer.width]
        return [finding for layer in weighted if (finding := self._oversized(layer, weighted)) is not None]

    def _oversized(self, layer: Layer, weighted: list[Layer]) -> Finding | None:
        limits = self.limits
        cost_share = self.cost_share(layer.ms)
        others = [other.width for other in weighted if other is not layer]
        if self.sure_share(layer.ms) < limits.oversized_share or not others or layer.kind.startswith("Embedding"):
            return None
        held = layer.parameters / max(1, self.parameters)
        usual = statistics.median(others)
        if max(held, layer.flop_share) < limits.oversized_weight or layer.width < limits.oversized_width * usual:
            return None
        low, high = (fraction * layer.ms for fraction in _NARROWER)
        return Finding(
            id="PD09.oversized-layer",
            severity=Severity.WARNING if cost_share >= limits.oversized_warning else Severity.NOTE,
            confidence=Confidence.MEDIUM,
            message="one layer, {layer}, takes {cost_ms} a step, {cost_share} of it",
            reasoning="it holds {held} of the parameters, does {flop_share} of the arithmetic, and with {width} is "
            "far wider than the other layers, whose median is {usual}",
            evidence=(
                *self._about(layer, layer.ms),
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
                ceiling=layer.ms,
                low=low,
                high=high,
                method="the layer's time falls with its width: half the width saves 40 %, a fifth of it 80 %",
            ),
        )

    def slow(self) -> list[Finding]:
        """Layers that take far more of the time than of the arithmetic."""
        if not self.profile.flops_per_step:
            return []
        return [finding for layer in self.profile.layers if (finding := self._slow(layer)) is not None]

    def _slow(self, layer: Layer) -> Finding | None:
        limits = self.limits
        cost_share = self.cost_share(layer.ms)
        if not layer.leaf or layer.kind in _UNCOUNTED or layer.ms < limits.slow_min_ms:
            return None
        if self.sure_share(layer.ms) < limits.slow_share or layer.time_share < limits.slow_factor * layer.flop_share:
            return None
        excess = layer.ms * (1 - layer.flop_share / layer.time_share)
        low, high = (fraction * excess for fraction in _SLOW_SAVES)
        return Finding(
            id="PD09.memory-bound-layer",
            severity=severity(cost_share, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="{layer} takes {cost_ms} a step, {cost_share}, for {flop_share} of the arithmetic",
            reasoning="{calls} calls a step on an input of {input} move memory or launch small kernels; arithmetic "
            "alone would take {arithmetic_ms} at the rate of the other layers",
            evidence=(
                *self._about(layer, layer.ms),
                Measurement("calls", layer.calls_per_step, "count", "calls per step"),
                Measurement("input", shape(layer.input_shape) or "no tensor", "text", "input"),
                milliseconds("arithmetic_ms", layer.ms - excess, "its share of the arithmetic"),
            ),
            fix=Fix(
                text="Let it work on less (after pooling or a stride, in place), or fuse it with its neighbours.",
                code=in_words_of(
                    self.evidence.job,
                    "model = torch.compile(model)  # fuses elementwise layers and norms",
                    transformers="TrainingArguments(..., torch_compile=True)",
                ),
                risk="Compiling takes minutes at the start and again for new shapes.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=excess,
                low=low,
                high=high,
                method="the layer's time beyond its share of the arithmetic; fusing saves 20 to 80 % of that",
            ),
        )


def _op_ms(ops: OpProfile, name: str, step: Step) -> float:
    """Time of one kind of operator, in an ordinary step."""
    return in_step(step, ops, sum(op.total_ms_per_step for op in ops.ops if op.name == name))


CHECK = Check(code="PD09", name="network", title="layers of the network", limits=Limits(), examine=examine)
