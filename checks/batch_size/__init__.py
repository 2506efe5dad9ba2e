"""Batch size: enough samples per step to pay for what a step costs anyway.

What it looks at
----------------
What a step costs whatever its batch: the optimizer's pass over the parameters, launching operators, reading
weights. The job's own largest products are timed in the training process with the present batch, a larger and a
smaller one; the rate of a large product on this machine says how far from its peak the job is. On a GPU, how much
of the step its kernels are busy, and how much of its memory is used.

Why it costs time
-----------------
A batch of 4 in a network of 512 units reached 17 % of the CPU's arithmetic rate, one of 64 75 %: the rest went into
launches and weights that are read again for each batch. Too large a batch costs as well: a convolutional
network's throughput fell by 28 % from 16 to 256 images, as its activations left the caches.

Example
-------
    loader = DataLoader(dataset, batch_size=4)    # 60 % of the step does not depend on the 4

    loss.backward()                               # eight times before optimizer.step(), with memory
    ...                                           # for eight times the micro-batch

How to fix
----------
A larger batch, with a learning rate to match; where gradients are accumulated, fewer and larger micro-batches, which
changes nothing in the optimisation. Where the batch is a given, a fused or foreach optimizer and `torch.compile`
make the fixed part smaller.

When it stays silent
--------------------
When even four times the batch would not process samples 1.1 times as fast. From 32 samples on it says what a
larger batch would give as a note only: batch size is a choice of optimisation first. Samples that are sequences
are counted in tokens too.

Limits
------
The prediction covers throughput, not how many epochs a model then needs. Elementwise operators are taken to grow in
proportion to the batch beyond their launch. Where a loop runs once per sample its operators count as growing;
a wait in the forward pass does too. What other libraries (NumPy, OpenCV) do in the forward pass is not seen.

References
----------
- Deeplearning4j, "How to debug performance issues", step 5
- McCandlish et al., "An empirical model of large-batch training": how large is still useful
- Goyal et al., "Accurate, large minibatch SGD": the learning rate grows with the batch
"""

from __future__ import annotations

from dataclasses import dataclass

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
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evidence, Line, Loader, Missing, OpProfile, Site, Step

from .._shared.loader_fixes import batch_size
from .growth import Growth, growth


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    min_share: float = 0.10
    """A tenth of the step, 1.1 times the throughput: less is not worth a change of the optimisation."""
    warning_share: float = 0.20
    """1.25 times the throughput."""
    merge_warning_share: float = 0.25
    """1.33 times the throughput: micro-batches are often small on purpose, for memory that is free only in this run."""
    error_share: float = 0.60
    """2.5 times the throughput."""
    usual_batch: int = 32
    """The guide's range is 32 to 128 samples; from its beginning on a larger batch is offered as a note."""
    usual_tokens: int = 4096
    """The same for sequences, in tokens: 32 sequences of 128."""
    factor: int = 4
    """How much larger a batch the prediction is for; products were timed up to this size."""
    allocator_share: float = 0.10
    """Share of CPU time in the kernel above which a large batch is first a matter for the allocator (PD08)."""
    memory_room: float = 0.5
    """Share of a GPU's memory in use up to which there is room for twice the batch."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Micro-batches that could be merged, a batch too small, a batch too large."""
    step, ops = evidence.step, evidence.ops
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(ops, Missing):
        return cannot_tell(f"operators were not seen: {ops}")
    grows = growth(evidence, step, ops)
    if isinstance(grows, Missing):
        return cannot_tell(str(grows))
    case = _Case(evidence, step, ops, grows, limits)
    finding = case.accumulation() or case.too_small() or case.too_large()
    if finding is not None:
        return found(finding, measurements=(*case.gains(), *case.figures()))
    return clear(
        "{factor} times the batch would process {gain_low} to {gain_high} as many samples a second; {fixed} of "
        "the step ({fixed_share}) does not depend on the batch",
        *case.gains(),
        *case.figures(),
    )


@dataclass(frozen=True, slots=True)
class _Case:
    evidence: Evidence
    step: Step
    ops: OpProfile
    grows: Growth
    limits: Limits

    @property
    def loader(self) -> Loader | None:
        """The one that feeds the loop."""
        loaders = self.evidence.loaders
        if isinstance(loaders, Missing):
            return None
        return max(loaders, key=lambda loader: loader.batches, default=None)

    @property
    def micro_batches(self) -> int:
        """Batches that one optimizer step takes. A loader that does not batch may yield samples: then no more than
        there are forward passes."""
        loader = self.loader
        if loader is None:
            return self._passes()
        drawn = max(1, round(loader.steady_batches_per_step))
        return drawn if loader.batch_size else min(drawn, max(1, round(self.step.micro_batches)))

    def _passes(self) -> int:
        """In a loop that makes its batches itself: calls of the network that have a backward pass each. Two views of a
        sample, or what an agent did, are several calls and one backward pass."""
        layers, line = self.evidence.layers, self._backward_line
        if isinstance(layers, Missing) or line is None:
            return 1
        whole = max((layer.calls_per_step for layer in layers.layers if not layer.name), default=1.0)
        return max(1, round(min(whole, line.passes_per_step)))

    @property
    def _backward_line(self) -> Line | None:
        """The line that asks for the backward pass most often."""
        lines = self.evidence.hot_lines
        if isinstance(lines, Missing):
            return None
        asking = [line for line in lines if line.part == "backward" and line.site.via]
        return max(asking, key=lambda line: line.passes_per_step, default=None)

    @property
    def first_input(self) -> tuple[int, ...]:
        """Shape of what enters the network; empty when unknown."""
        layers = self.evidence.layers
        if isinstance(layers, Missing):
            return ()
        shaped = [layer for layer in layers.layers if layer.input_shape]
        return min(shaped, key=lambda layer: layer.order).input_shape if shaped else ()

    @property
    def batch(self) -> int | None:
        """Samples of one forward pass."""
        if not isinstance(self.step.samples, Missing):
            return max(1, round(self.step.samples / self.micro_batches))
        return self.first_input[0] if self.first_input else None

    @property
    def tokens(self) -> int | None:
        """Elements of a batch whose samples are sequences of indices: what an embedding looks up."""
        layers = self.evidence.layers
        if isinstance(layers, Missing):
            return None
        shapes = [x.input_shape for x in layers.layers if x.kind == "Embedding" and len(x.input_shape) == 2]
        return max((rows * length for rows, length in shapes), default=None)

    def gains(self) -> tuple[Measurement, ...]:
        """What a larger batch would give."""
        low, high = self.grows.gain(self.limits.factor)
        return (
            Measurement("factor", self.limits.factor, "count", "times the batch"),
            Measurement("gain_low", low, "ratio", "throughput then, at least"),
            Measurement("gain_high", high, "ratio", "throughput then, at most"),
        )

    def figures(self) -> tuple[Measurement, ...]:
        """What every outcome shows."""
        grows = self.grows
        flops = self.ops.flops()
        timings = self.ops.batch_timings
        peak = 0.0 if isinstance(timings, Missing) else timings.peak_gflops
        return (
            milliseconds("fixed", grows.fixed_low_ms, "of the step whatever the batch, shown"),
            share("fixed_share", grows.fixed_low_ms / grows.step_ms, "of the step"),
            *((Measurement("batch", self.batch, "count", "samples per forward pass"),) if self.batch else ()),
            *((Measurement("tokens", self.tokens, "count", "tokens per forward pass"),) if self.tokens else ()),
            Measurement("ops", round(self.ops.ops_per_step), "count", "operators per step"),
            *((share("peak_share", flops / grows.step_ms / 1e6 / peak, "of this machine's peak"),) if peak else ()),
        )

    @property
    def usual(self) -> bool:
        """Whether the batch is within the range in which its size is a choice."""
        tokens = self.tokens
        if tokens is not None and tokens >= self.limits.usual_tokens:
            return True
        return self.batch is None or self.batch >= self.limits.usual_batch

    @property
    def place(self) -> Site | Missing | None:
        return None if self.loader is None else self.loader.site

    def _severity(self, saved_ms: float, warning: float | None = None) -> Severity:
        least = self.limits.warning_share if warning is None else warning
        return severity(saved_ms / self.grows.step_ms, least, self.limits.error_share)

    # -- findings -----------------------------------------------------------------------------------------

    def accumulation(self) -> Finding | None:
        """Micro-batches that memory would allow to merge: the same optimisation for fewer launches."""
        merged = self.micro_batches
        if merged < 2 or not self._room(merged):
            return None
        low = self.grows.compute_fixed_low_ms * (1 - 1 / merged)
        high = self.grows.compute_fixed_high_ms * (1 - 1 / merged)
        if low < self.limits.min_share * self.grows.step_ms:
            return None
        return Finding(
            id="PD05.mergeable-accumulation",
            severity=Severity.NOTE if self.usual else self._severity(low, self.limits.merge_warning_share),
            confidence=Confidence.MEDIUM,
            message="each optimizer step takes {micro_batches:micro-batch} of {batch}; one of them would save "
            "up to {saved_high} a step",
            reasoning="{launched} in forward and backward are launches and weights that every micro-batch pays again, "
            "and there is memory for the whole batch",
            evidence=(
                Measurement("micro_batches", merged, "count", "micro-batches per step"),
                milliseconds("saved_low", low, "saved at least"),
                milliseconds("saved_high", high, "saved at most"),
                milliseconds("launched", self.grows.compute_fixed_low_ms, "fixed in forward and backward"),
                *self.figures(),
            ),
            location=location(self.place if self.loader or not self._backward_line else self._backward_line.site),
            fix=Fix(
                text="Accumulate over fewer, larger micro-batches: the step sees the same samples.",
                code=batch_size(self.evidence.job, (self.batch or 1) * merged, accumulate=1)
                if self.loader
                else f"batch_size = {(self.batch or 1) * merged}  # and optimizer.step() after each",
                risk="Batch normalisation sees larger batches; memory for activations grows with the micro-batch.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="products timed at two sizes, and up to 10 us for each other operator, paid once instead of "
                "per micro-batch",
            ),
        )

    def too_small(self) -> Finding | None:
        """Samples that would cost much less in a larger batch."""
        factor = self.limits.factor if self._room(self.limits.factor) else 2
        low, high = self.grows.saved(factor)
        if low < self.limits.min_share * self.grows.step_ms or not self._room(factor):
            return None
        gain_low, gain_high = self.grows.gain(factor)
        timed = not isinstance(self.ops.batch_timings, Missing)
        return Finding(
            id="PD05.batch-too-small",
            severity=Severity.NOTE if self.usual else self._severity(low),
            confidence=Confidence.LOW if self.evidence.on_cuda else Confidence.MEDIUM,
            message="{fixed} of the step ({fixed_share}) do not depend on the batch"
            + (" of {batch}" if self.batch else "")
            + "; {times} times the batch would process {more_low} to {more_high} as many samples a second",
            reasoning="{ops:operator} a step must be launched, weights read and parameters updated, however many "
            "samples there are" + ("; the job reaches {peak_share} of this machine's arithmetic" if timed else ""),
            evidence=(
                Measurement("times", factor, "count", "times the batch"),
                Measurement("more_low", gain_low, "ratio", "throughput then, at least"),
                Measurement("more_high", gain_high, "ratio", "throughput then, at most"),
                *self.figures(),
            ),
            location=location(self.place),
            fix=Fix(
                text="Try a larger batch. This changes the optimisation: there are fewer steps in an epoch, so raise "
                "the learning rate with it (linearly for SGD, with its square root for Adam) and compare the "
                "validation loss after as many epochs.",
                code=batch_size(self.evidence.job, (self.batch or 1) * factor),
                risk="A larger batch trains differently and may generalise worse; it takes more memory.",
                remedies=(f"batch.larger={factor}",),
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                general=True,
                method="per batch of today's size; from the job's own products timed at two sizes, up to 10 us for "
                "each other operator, and the optimizer's part"
                if timed
                else "per batch of today's size; the host's part of the step stays, the kernels' grows",
            ),
        )

    def too_large(self) -> Finding | None:
        """Products that take less per sample with a quarter of the batch, by more than three more launches cost."""
        timings = self.ops.batch_timings
        if isinstance(timings, Missing):
            return None
        pieces = timings.smaller
        saved = sum(
            timing.calls_per_step * (timing.milliseconds - pieces * timing.smaller_milliseconds)
            for timing in timings.ops
            if timing.smaller_milliseconds is not None
        )
        low = saved - (pieces - 1) * self.grows.compute_fixed_high_ms
        high = saved - (pieces - 1) * self.grows.compute_fixed_low_ms
        if low < self.limits.min_share * self.grows.step_ms:
            return None
        memory = self.evidence.memory
        by_kernel = 0.0 if isinstance(memory, Missing) else memory.system_share
        return Finding(
            id="PD05.batch-too-large",
            severity=Severity.NOTE if by_kernel >= self.limits.allocator_share else self._severity(low),
            confidence=Confidence.LOW,
            message="samples take longer in a batch this large: {pieces:forward pass} over a quarter of it each "
            "would save up to {saved_high} a step",
            reasoning="the step's products take {products_saved} less in quarters, because what they work on then "
            "stays in the caches and in memory that the allocator keeps; {kernel_share} of the CPU time is the "
            "kernel's",
            evidence=(
                Measurement("pieces", pieces, "count", "forward passes instead of one"),
                milliseconds("saved_low", low, "saved at least"),
                milliseconds("saved_high", high, "saved at most"),
                milliseconds("products_saved", saved, "products alone"),
                share("kernel_share", by_kernel, "of the CPU time in the kernel"),
                *self.figures(),
            ),
            location=location(self.place),
            fix=Fix(
                text="Accumulate gradients over quarters of the batch: the step sees the same samples. If the kernel's "
                "share is large, change the allocator first (PD08).",
                code=batch_size(self.evidence.job, max(1, (self.batch or 1) // pieces), accumulate=pieces),
                risk="Batch normalisation sees smaller batches.",
            ),
            savings=savings(
                self.step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="the job's own products timed with a quarter of the batch, less three times the launches",
            ),
        )

    def _room(self, factor: float) -> bool:
        """Whether memory would hold activations of such a batch, as far as that is known."""
        memory, host = self.evidence.cuda_memory, self.evidence.host
        if not isinstance(memory, Missing):
            used = memory.peak_allocated_bytes / max(1, memory.total_bytes)
            return used * factor <= 2 * self.limits.memory_room
        if isinstance(host, Missing):
            return True
        return host.peak_job_bytes * (factor - 1) <= host.memory_available_bytes


CHECK = Check(code="PD05", name="batch-size", title="minibatch size", limits=Limits(), examine=examine)
