"""What every finding about the batch size needs, and from where on another one is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Measurement, Severity, milliseconds, severity, share
from perfdoctor.api.quantities import Evidence, Loader, Missing, OpProfile, Site, Step

from .._shared.feeding import feeding
from .._shared.lines import backward_line, decided, model_call
from .growth import Growth


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    min_share: float = 0.10
    """A tenth of the step, 1.1 times the throughput: less is not worth a change of the optimisation."""
    warning_share: float = 0.20
    """1.25 times the throughput."""
    padding_share: float = 0.05
    """Of padding that no sequence needs: another function to collate, and nothing of the optimisation changes."""
    merge_warning_share: float = 0.25
    """1.33 times the throughput: micro-batches are often small on purpose, for memory that is free only in this run."""
    parts_warning_share: float = 0.10
    """1.11 times the throughput: calls that are joined change nothing of the optimisation."""
    error_share: float = 0.60
    """2.5 times the throughput."""
    usual_batch: int = 32
    """The guide's range is 32 to 128 samples; from its beginning on merging micro-batches is no ill."""
    usual_tokens: int = 4096
    """The same for sequences, in tokens: 32 sequences of 128."""
    factor: int = 4
    """How much larger a batch the prediction is for; products were timed up to this size."""
    allocator_share: float = 0.10
    """Share of CPU time in the kernel above which a large batch is first a matter for the allocator (PD08)."""
    memory_room: float = 0.5
    """Share of a GPU's memory in use up to which there is room for twice the batch."""


@dataclass(frozen=True, slots=True)
class Case:
    """A steady step, its batches, and how it grows with them."""

    evidence: Evidence
    step: Step
    ops: OpProfile
    grows: Growth
    limits: Limits

    @property
    def loader(self) -> Loader | None:
        """The one that feeds the loop."""
        return feeding(self.evidence)

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
        sample, or what an agent did, are several calls and one backward pass; networks that learn in turn have a pass
        and an update each."""
        layers, line = self.evidence.layers, backward_line(self.evidence)
        if isinstance(layers, Missing) or line is None:
            return 1
        whole = max((layer.calls_per_step for layer in layers.layers if not layer.name), default=1.0)
        return max(1, round(min(whole, line.passes_per_update)))

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
        """Samples of one forward pass, as the loader counts them: a batch of graphs has a row for each node."""
        if self.loader is not None and self.loader.batch_size:
            return self.loader.batch_size
        if not isinstance(self.step.samples, Missing):
            return max(1, round(self.step.samples / self.micro_batches))
        if not isinstance(self.ops.batch_replay, Missing):
            return self.ops.batch_replay.batch
        return self._rows(self.first_input) if self.first_input else None

    def _rows(self, shape: tuple[int, ...]) -> int:
        """Samples in an input of the network. One with a single dimension is one sample (a state), unless its numbers
        are looked up."""
        layers = self.evidence.layers
        looked_up = () if isinstance(layers, Missing) else (x for x in layers.layers if x.kind.startswith("Embedding"))
        return shape[0] if len(shape) > 1 or any(layer.input_shape == shape for layer in looked_up) else 1

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
            milliseconds("fixed", grows.fixed_low_ms, "fixed overhead per step, at least"),
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
        """Where the size of a batch is decided: the line that tells a trainer, else the one that makes the loader. In a
        loop that makes its batches itself the one that makes them, by their shape, else the one that gives them to the
        network."""
        if self.evidence.job.batch_at is not None:
            return self.evidence.job.batch_at
        if self.loader is not None:
            return decided(self.loader.batch_at, self.loader.site)
        lines = self.evidence.hot_lines
        sizes = self.first_input
        making = [] if isinstance(lines, Missing) or not sizes else [line for line in lines if sizes in line.shapes]
        return max(making, key=lambda line: line.ops_ms).site if making else model_call(self.evidence)

    def severity(self, saved_ms: float, warning: float) -> Severity:
        """By what is saved of the time that the step had a CPU."""
        return severity(saved_ms / self.grows.step_ms, warning, self.limits.error_share)

    def has_room(self, factor: float) -> bool:
        """Whether memory would hold activations of such a batch, as far as that is known."""
        memory, host = self.evidence.cuda_memory, self.evidence.host
        if not isinstance(memory, Missing):
            used = memory.peak_allocated_bytes / max(1, memory.total_bytes)
            return used * factor <= 2 * self.limits.memory_room
        if isinstance(host, Missing):
            return True
        return host.peak_job_bytes * (factor - 1) <= host.memory_available_bytes
