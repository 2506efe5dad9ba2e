"""Batch size: enough samples per step to pay for its fixed overhead, independent of the batch size; and sequences no
longer than their batch needs.

What it looks at
----------------
The step's fixed overhead, independent of the batch size: the optimizer's pass over the parameters, launching operators,
reading weights. After the last step the job's own forward and backward are run again on its inputs, repeated; where
that cannot be (other ranks, hooks, a compiled model), the largest products are timed with the present batch, a larger
and a smaller one. The rate of a large product on this machine says how far from its peak the job is. On a GPU, how much
of the step its kernels are busy, and how much of its memory is used. Of a batch of tokens, how many at the end of all
rows, or at their beginning, are one and the same number, and of a batch of recordings at their end: the passes are run
again without these; and on rows as long as its sequences are on average, where that is much less. Where shapes differ
from batch to batch, the batch of middle size among some thirty is the one that is kept for this. A module inside the
network that a loop calls with one part after the other (a frame, a patch, an agent), each of the same shape and none
needing what the one before led to: its passes are run again with one part and with several at once.

Why it costs time
-----------------
A batch of 4 in a network of 512 units reached 17 % of the CPU's arithmetic rate, one of 64 75 %: the rest went into
launches and weights that are read again for each batch. Too large a batch costs as well: a convolutional
network's throughput fell by 28 % from 16 to 256 images, as its activations left the caches. Tokens of padding are
computed like any others: a transformer on texts padded to 135 took 96 ms a step, and 39 ms on the same texts padded to
the longest of each batch, which were 43 and less.

Example
-------
    loader = DataLoader(dataset, batch_size=4)    # 60 % of the step is fixed overhead

    loss.backward()                               # eight times before optimizer.step(), with memory
    ...                                           # for eight times the micro-batch

    tokens = tokenizer(text, padding="max_length", max_length=512)   # and most texts have 60

    features = [self.encoder(clips[:, t]) for t in range(frames)]    # self.encoder(clips.flatten(0, 1)), once

How to fix
----------
A larger batch, with a learning rate to match; where gradients are accumulated, fewer and larger micro-batches, which
changes nothing in the optimisation. Pad where batches are collated, to the longest sequence of each. Where the batch is
a given, a fused or foreach optimizer and `torch.compile` make the fixed part smaller.

When it stays silent
--------------------
When even four times the batch would have a speed-up below 1.1x per sample. What a larger batch would give is an
opportunity, never an alarm: batch size is a choice of optimisation first. So is merging micro-batches of 32 samples
and more, or where the job's own passes could not be run with a larger batch; samples that are sequences are counted
in tokens too. Padding is an ill from a twentieth of the step on, but only what no sequence of a batch needs: lengths
that differ within a batch are an opportunity, where sequences have at most 70 % of the longest one's on average. Loops
over parts where an iteration needs the one before, each calls another module, or the module keeps tensors from call to
call, as spiking neurons do.

Limits
------
The prediction covers throughput, not how many epochs a model then needs. Elementwise operators are taken to grow in
proportion to the batch beyond their launch. Where a loop runs once per sample its operators count as growing;
a wait in the forward pass does too. What other libraries (NumPy, OpenCV) do in the forward pass is not seen. Padding
is looked for in one batch of each shape that a module is called with, samples first: in whole numbers of two
dimensions, and in other numbers of two or three, of at least four samples, where rows end at places of their own. A
batch that happens to hold a long sequence hides what others are padded by. Not where the passes cannot be run again, or
the model takes no shorter sequences.

References
----------
- Deeplearning4j, "How to debug performance issues", step 5
- McCandlish et al., "An empirical model of large-batch training": how large is still useful
- Goyal et al., "Accurate, large minibatch SGD": the learning rate grows with the batch
"""

from __future__ import annotations

from perfdoctor.api.findings import Check, Outcome, cannot_tell, clear, found, present
from perfdoctor.api.quantities import Evidence, Missing

from .case import Case, Limits
from .growth import growth
from .in_parts import in_parts
from .mixed_lengths import mixed_lengths
from .padding import padded
from .sizes import mergeable_accumulation, too_large, too_small


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Padding; and one of micro-batches that could be merged, a batch too small, a batch too large."""
    step, ops = evidence.step, evidence.ops
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not seen: {ops}")
    grows = growth(evidence, step, ops)
    if isinstance(grows, Missing):
        return cannot_tell(str(grows))
    case = Case(evidence, step, ops, grows, limits)
    size = mergeable_accumulation(case) or too_small(case) or too_large(case)
    findings = present(*in_parts(case), padded(case), mixed_lengths(case), size)
    measured = (*case.gains(), *case.figures())
    if findings:
        return found(*findings, measurements=measured)
    return clear(
        "{fixed} per step ({fixed_share}) is fixed overhead, independent of the batch size; a batch {factor} times as "
        "large would process {gain_low} to {gain_high} the samples per second",
        *measured,
    )


CHECK = Check(code="PD05", name="batch-size", title="minibatch size", limits=Limits(), examine=examine)
