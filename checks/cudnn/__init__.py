"""cuDNN, and on a CPU oneDNN: whether the fast library does the convolutions, recurrent layers and attention.

What it looks at
----------------
Which operator did each convolution and recurrent layer of the profiled steps: the library's (`cudnn_convolution`,
`mkldnn_convolution`) or torch's own (`thnn_conv2d`, `slow_conv3d`), and what torch would choose between the steps;
whether the library was on inside the forward pass; convolutions along the height of images that are one number wide, by
passes made again with the axes exchanged, those of a few channels more or less than a multiple of 16, by passes with
that many, and those of narrow groups, made again with several in one; cuDNN's settings, shapes of batches and
memory formats; attention by torch's fused kernel, by its math path, or made by hand of two products and a softmax.

Of a trace: kernels that do nothing but change the memory layout, where the device bounds the step.

Why it costs time
-----------------
Native convolutions were measured 3.4 times slower than oneDNN's, a native LSTM 1.5 to 4 times; on a GPU cuDNN has a
speed-up of 3x to 10x. Attention made by hand writes its matrix of scores to memory several times, forward and backward:
on a CPU it was measured 1.3 to 2.7 times slower than the fused kernel, from 128 positions to 1024. Images whose
channels come first in memory: on a CPU a max pooling forward and backward took 7 times as long so, a batch norm 2.6
times, and convolutions from 1.02 (256 channels of 14 x 14) to 1.7 times (8 channels of 128 x 128). An LSTM on a CPU
took 1.5 times (5 to 30 steps of 128 sequences) to 5.4 times as long (100 to 200 steps of 16) on packed sequences as on
padded ones, which oneDNN does. With the channels last, norms, activations and pooling compute as many of them at once
as vectors hold, and the rest one by one: a network of 15, 31 and 62 channels took 48 s, and of 16, 32 and 64 took 27.
Convolutions compute whole vectors in either layout: with a norm and a ReLU one of 17 channels took twice as long as one
of 16. Groups of two to seven channels fill no vector, and have no kernel as those of one channel (depthwise) have.

Example
-------
    with torch.backends.mkldnn.flags(deterministic=True):   # enabled=False is this function's default!
        loss = model(batch)                                 # and that of torch.backends.cudnn.flags
    weights = (q @ k.transpose(-2, -1) / math.sqrt(d)).softmax(-1)
    y = weights @ v

    packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
    _, (state, _) = self.lstm(packed)

How to fix
----------
Let convolutions along one axis run along the last one. Make channels multiples of 16, or of 8 at least, and those of a
group as well. Pass enabled=True to `flags()`. Call `torch.nn.functional.scaled_dot_product_attention`, and
`nn.MultiheadAttention` with need_weights=False. On a CPU, give an LSTM padded sequences, and take each one's state at
its end. Keep images and model in the channels-last format where that was timed to be faster. On a GPU use the cuDNN
that torch brings along, `benchmark = True` for fixed shapes only, and channels-last tensors in half precision.

When it stays silent
--------------------
When the fused kernel, timed in this job with its shapes, mask and dropout, is not faster: short sequences, bfloat16 on
some CPUs, and dropout on a CPU, for which torch has no fused kernel. When oneDNN is off in the whole process: that is
PD01's. What channels last would save is an opportunity, never an alarm: the layout is torch's own choice. So are
channels, of which 15 % more or less at most are tried, and none where a layer takes no other number of them. When
torch's own kernel was taken for the type (float64): that is PD07's. Small convolutions and depthwise ones are native on
purpose. Packed sequences in a layer of both directions, or where less than a quarter of what is padded would be used:
padded ones are then another thing, or more work.

Limits
------
On a CPU timings are measured on the job's own shapes; large attention is replayed in part. On a GPU nothing is timed
both ways, and savings are ranges from elsewhere. Attention in compiled graphs, and made of two-dimensional products,
is not recognised. Whether the weights of attention are used elsewhere is not seen.

References
----------
- Deeplearning4j, "How to debug performance issues", step 2
- Dao et al., "FlashAttention: fast and memory-efficient exact attention with IO-awareness" (2022)
- PyTorch performance tuning guide: cuDNN benchmark, channels last
- pytorch#2759: a new algorithm search for every new shape
- speechbrain#294: benchmark mode on fixed shapes
"""

from __future__ import annotations

from perfdoctor.api.causes import in_step
from perfdoctor.api.findings import Check, Finding, Outcome, cannot_tell, clear, found, not_applicable, present
from perfdoctor.api.quantities import Backend, Evidence, LibraryUse, Missing, Step

from .._shared.traced import traced
from .attention import attention
from .case import Case, Limits
from .channels_last import channels_last
from .done_by import done_by, measured
from .long_axis import long_axis
from .narrow_groups import narrow_groups
from .odd_channels import odd_channels
from .on_device import in_trace
from .packed import packed_sequences
from .unused import onednn_disabled, unused
from .usage import benchmark_off, benchmark_on_new_shapes, channels_first, deterministic, scattered_weights


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """The library of convolutions and recurrent layers, then attention."""
    step, ops, use, backend = evidence.step, evidence.ops, evidence.library_use, evidence.backend
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    seen = traced(step, evidence.activity)
    if seen is not None:
        return in_trace(seen)
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not profiled: {ops}")
    if isinstance(use, Missing):
        return cannot_tell(f"which library did the work is not known: {use}")
    if isinstance(backend, Missing):
        return cannot_tell(f"what torch computes with was not read: {backend}")
    if not (use.convolutions or use.recurrent or use.attention):
        if evidence.job.compiled:
            return cannot_tell("the model is compiled, and its graphs do not show convolutions or attention by name")
        return not_applicable("the step has no convolution, no recurrent layer and no attention")
    if evidence.on_cuda:
        library = _on_gpu(evidence, step, use, backend, limits)
    else:
        library = present(
            onednn_disabled(evidence, step, backend, limits)
            or channels_last(evidence, step, ops, use, limits.min_share),
            packed_sequences(evidence, step, ops, use, limits),
            long_axis(evidence, step, ops, limits),
            odd_channels(evidence, step, ops, limits),
            narrow_groups(evidence, step, ops, limits),
        )
    findings = (*library, *attention(evidence, step, ops, use, limits))
    shared = measured(evidence, step, ops, use)
    if findings:
        return found(*findings, measurements=shared)
    if evidence.on_cuda and isinstance(evidence.cudnn, Missing) and (use.convolutions or use.recurrent):
        return cannot_tell(f"cuDNN's settings were not read: {evidence.cudnn}")
    untimed = [row for row in use.attention if row.made != "fused" and isinstance(row.timing, Missing)]
    untimed_ms = in_step(step, ops, sum(row.ms_per_step for row in untimed))
    if not use.on_device and untimed_ms / step.step_ms >= limits.min_share:
        return cannot_tell(f"attention that is not fused takes much of the step, and {untimed[0].timing}")
    unseen = "; inside compiled functions nothing was seen" if evidence.job.compiled else ""
    return clear(done_by(use) + unseen, *shared)


def _on_gpu(evidence: Evidence, step: Step, use: LibraryUse, backend: Backend, limits: Limits) -> tuple[Finding, ...]:
    """Whether cuDNN does the work; only then how."""
    if isinstance(evidence.cudnn, Missing) or backend.hip:
        return ()
    case = Case(evidence, step, use, evidence.cudnn, limits)
    return present(unused(case)) or present(
        benchmark_on_new_shapes(case),
        benchmark_off(case),
        deterministic(case),
        channels_first(case),
        scattered_weights(case),
    )


CHECK = Check(
    code="PD02",
    name="cudnn",
    title="cuDNN (on a CPU: oneDNN), attention",
    limits=Limits(),
    examine=examine,
)
