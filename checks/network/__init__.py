"""Layers of the network: which of them take the step, and whether they should.

What it looks at
----------------
Forward and backward time, floating-point operations, parameters and shapes of every layer in the profiled steps; what
other layers would take in the place of the convolution that takes most, timed in the job's process after its last step;
the operators that make gradients of embedding tables, or scale their rows; recurrent cells, and whole recurrent layers,
that Python calls once per time step; layers of one class that a loop calls one after the other, or that a module gives
the same as gates, though none needs the one before, by their own passes and by one with the weights of all, which has
to give the same numbers; layers of one class that are given the same rows, most of whose results have no gradient, by
the model's own passes with each on the rest alone, which have to give the same numbers whatever stands in the other
rows; and, in two steps, which classes the targets of a cross-entropy name and which rows of a table are looked up.

Of a trace: the kernels that take longest with the operators that launched them, and those that a compiler could fuse.

Why it costs time
-----------------
A layer too wide for its place costs time in proportion to its width: hidden layers of 2048 units instead of 256 made a
small network 49 times slower. A layer that takes far more of the time than of the arithmetic waits for memory or for
launches. The gradient of an embedding table is as large as the table, however few rows a batch touches, and the
optimizer then updates every row. Sparse gradients pay where few rows are touched: up to a twelfth of them for
SparseAdam, a quarter for Adagrad and SGD. A recurrent cell in a Python loop pays for every time step what a fused layer
pays once.

A router that picks one of eight experts, and multiplies what the others make by zero, has seven eighths of the rows
computed for nothing: with two such layers of eight experts a network trained on 459 cloths a second, and on 1,389 with
the picked rows alone.

An output that no target ever uses costs as much as one that is needed: its product, its place in the softmax, its
gradient and its update.

A feed-forward part is four times as wide as the model in most transformers. Libraries' defaults are made for a model of
512 or 768 units: `nn.TransformerEncoderLayer(128, 4)` has 2,048 in there, sixteen times as many.

Example
-------
    self.head = nn.Linear(256, 30_000)            # for 300 classes
    self.flatten = nn.Linear(3_075_200, 512)      # straight from the feature map
    self.table = nn.Embedding(1_000_000, 64)      # a batch touches 1,000 rows
    self.words = nn.Embedding(60_000, 64, max_norm=1.0)   # a norm for each row of each lookup, one by one
    for t in range(steps):
        h = self.cell(x[:, t], h)                 # 100 calls instead of one
    out = sum(gate[:, i, None] * expert(x) for i, expert in enumerate(self.experts))   # gate: zero for all but one
    layer = nn.TransformerEncoderLayer(128, 4)    # dim_feedforward=512; ViTConfig(hidden_size=256): intermediate_size
    values = torch.stack([critic(state) for critic in self.critics])   # ten networks of one shape: torch.baddbmm

How to fix
----------
For the convolution that takes most, follow what was timed: depthwise and 1x1, groups, a bottleneck, smaller kernels, a
stride in the place of pooling, each on the job's own shapes. Give the head as many outputs as there are classes;
replace large kernels by several of 3; pool before flattening; narrow the layer, and compare the validation loss; give
large tables `sparse=True`; keep the weights of heads or of an ensemble's members in one layer; give experts the rows
that were picked for them; use `nn.LSTM` or `nn.GRU` for whole sequences; sample the softmax of a very wide head; let
what waits for memory work on less, or `torch.compile` fuse what issues several operators.

When it stays silent
--------------------
The guide's figures (layers, kernel sizes, channels, hidden sizes, parameters) are shown, never alarmed: networks of a
hundred layers are ordinary today. The largest layer of a sane network often takes more than half of the step; it is
named only if it is also many times wider than its neighbours. One that a whole sequence or picture enters, and that is
sixteen times as wide, is an opportunity from a fifth of the step on. How wide the data is (what the first layer is fed
with) is a given. A convolution that takes and computes most of the step is an opportunity where its kernel, its
channels or the points that it is computed at are why; a large kernel is more where its arithmetic is also many times
its neighbours'. A head whose classes the targets use is as wide as it has to be: a language model with a real
vocabulary gets an opportunity at most, and so do layers that are called one after the other, and feed-forward parts
that the job made eight times as wide as the model and more: where it leaves that at a library's default, it is an ill.

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

from dataclasses import replace

from perfdoctor.api.causes import compute
from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found, not_applicable, present
from perfdoctor.api.quantities import Cause, Evidence, Missing

from .._shared.traced import traced
from .case import Case, Limits
from .convolutions import dominant_convolutions
from .embeddings import dense_embedding_gradient
from .experts import idle_experts
from .feed_forward import wide_feed_forward
from .memory_bound import memory_bound_layers
from .on_device import in_trace
from .one_by_one import layers_one_by_one
from .oversized import oversized_head, oversized_layers, unused_outputs
from .renormalized import renormalized_embedding
from .time_loop import time_loops


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Embedding tables, time loops, the head, one layer too large, layers slower than their arithmetic."""
    step, layers = evidence.step, evidence.layers
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if isinstance(layers, Missing):
        return cannot_tell(f"layers were not timed: {layers}")
    if not layers.layers:
        return not_applicable("the step calls no module, so there are no layers to compare")
    layers = replace(layers, stray_ms=layers.stray_ms + _thread_ms(evidence))
    case = Case(evidence, step, layers, limits)
    # A layer is named once, by what says most about it.
    findings = [*present(dense_embedding_gradient(case), renormalized_embedding(case)), *time_loops(case)]
    findings += present(unused_outputs(case) or oversized_head(case))
    for some in (oversized_layers, dominant_convolutions, memory_bound_layers):
        named = {finding.evidence[0].value for finding in findings}
        findings += [finding for finding in some(case) if finding.evidence[0].value not in named]
    findings += present(wide_feed_forward(case))
    experts = idle_experts(case)
    findings += (*experts, *layers_one_by_one(case, {finding.location for finding in experts}))
    if findings:
        return found(*findings, measurements=case.shared())
    return clear(
        "the slowest of {layers:layer}, {slowest}, takes {slowest_ms} per step ({slowest_share})", *case.shared()
    )


def _thread_ms(evidence: Evidence) -> float:
    """What another number of threads would save: which layers lose it to each other's waits is chance."""
    split = compute(evidence)
    return 0.0 if isinstance(split, Missing) else split.savable_ms(Cause.THREADS)


CHECK = Check(
    code="PD09", name="network", title="layers of the network", limits=Limits(), examine=examine, aliases=("layers",)
)
