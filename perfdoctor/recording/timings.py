"""What a job's own work would take otherwise: timed while it trains, after its last step, or in another process.
Milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from .base import NOT_TIMED, Missing, Site
from .libraries import Attention, LayoutTiming, LibraryTiming, Recurrent
from .modules_again import Experts, InParts, InTurn, RepeatedRows, Siblings

NOT_TRACED = Missing("nobody traces Python's allocations, or what that costs was not timed")
CALLS_NOT_TRACED = Missing("nobody traces Python's calls, or what that costs was not timed")
"""In the place of a `TracingTiming`."""
NO_LIMIT = Missing("no variable limits vector extensions")


@dataclass(frozen=True, slots=True)
class DtypeTiming:
    """One of the job's own operators, timed in this process on zeros of its shapes in two types."""

    name: str
    shapes: str
    dtype: str
    """What the job uses; of complex numbers, what they are pairs of."""
    milliseconds: float
    """One call in `dtype`."""
    float32_milliseconds: float
    """One call in float32."""
    bfloat16_milliseconds: float | None = None
    """One call in bfloat16, of a product in float32 on a CPU that multiplies it; else None."""
    convert_milliseconds: float | None = None
    """To convert its inputs to bfloat16."""


@dataclass(frozen=True, slots=True)
class ThreadTiming:
    """The job's own largest operators, timed in this process with a number of intra-op threads."""

    threads: int
    milliseconds: float
    """One round of them all, mean; comparable between the entries of one run only."""
    rounds: int = 1
    """Rounds, half a second or more apart."""


@dataclass(frozen=True, slots=True)
class PassWays:
    """The job's own calls of modules in the operator window, forward and backward, made again in other ways after its
    last step: milliseconds of all, on the wall clock."""

    now_ms: float
    times: tuple[tuple[str, float], ...]
    """By name: `threads=2`, `bfloat16`, `float32`, `channels last`, `without padding`, `of like length`,
    `without checkpointing`, `fused attention`, `no pool`, `memory kept`."""
    length: int = 0
    """Tokens of a padded sequence ..."""
    needed: int = 0
    """... and as many as the longest of its batch has. Both 0 where nothing was cut off."""
    batch_length: int = 0
    """Tokens of a sequence in a batch of very different lengths ..."""
    mean_length: int = 0
    """... and as many as its sequences have on average. Both 0 where they are of like length."""
    kept_bytes: int = 0
    """What the forward passes keep for their backward passes without checkpointing."""

    def share(self, way: str) -> float | None:
        """What is left of the time that way; None where it was not tried."""
        took = dict(self.times).get(way)
        return None if took is None or self.now_ms <= 0 else took / self.now_ms


@dataclass(frozen=True, slots=True)
class ThreadRound:
    """One round with each number of threads."""

    step: int
    timings: tuple[ThreadTiming, ...]


@dataclass(frozen=True, slots=True)
class BatchTiming:
    """One of the job's own products, timed in this process with other numbers of samples; milliseconds of one call."""

    name: str
    shapes: str
    calls_per_step: float
    milliseconds: float
    """With the job's batch."""
    factor: int
    larger_milliseconds: float
    """With `factor` times the batch."""
    smaller_milliseconds: float | None = None
    """With a `BatchTimings.smaller`th of the batch; None for small operators."""

    @property
    def growing_milliseconds(self) -> float:
        """The part of one call that grows with the batch, from the two sizes; no more than the whole."""
        slope = (self.larger_milliseconds - self.milliseconds) / (self.factor - 1)
        return min(self.milliseconds, max(0.0, slope))


@dataclass(frozen=True, slots=True)
class BatchTimings:
    """What the job's largest products take with larger and smaller batches."""

    ops: tuple[BatchTiming, ...]
    smaller: int
    peak_gflops: float
    """Of a float32 product that fits the caches, in this process: 10^9 operations per second."""
    floor_ms: float
    """One call of the smallest operator."""


@dataclass(frozen=True, slots=True)
class BatchReplay:
    """The job's own calls of modules in the operator window, forward and backward, made again with repeated inputs."""

    batch: int
    """Samples of the call that takes longest; 1 where its inputs have no dimension for them."""
    times: tuple[tuple[int, float], ...]
    """How many times the batch, and milliseconds of all calls, of one thread's CPU time; from once upwards."""

    def growing(self, error: float) -> float:
        """The share of a pass that grows with the batch, from the largest that was timed, at most 1; `error`: of that
        time, more or less."""
        (_, once_ms), *_, (factor, larger_ms) = self.times
        return min(1.0, max(0.0, ((1 + error) * larger_ms / once_ms - 1) / (factor - 1)))


@dataclass(frozen=True, slots=True)
class ConvolutionTiming:
    """The job's largest convolution, timed in this process on tensors of its shapes, as it is and as other layers in
    its place: milliseconds of one call, forward and backward."""

    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    now_ms: float
    ways: tuple[tuple[str, float], ...]
    """By name: `small`, as many kernels of 3 as see as far; `depthwise`, and a 1 x 1; four `groups`; a `bottleneck` of
    a quarter of the channels; twice the `stride`."""

    def share(self, way: str) -> float | None:
        """What is left of its time that way; None where it cannot be made so."""
        took = dict(self.ways).get(way)
        return None if took is None or self.now_ms <= 0 else took / self.now_ms


@dataclass(frozen=True, slots=True)
class GroupsTiming:
    """A convolution of narrow groups, or its backward pass, timed in this process on tensors of its shapes, as it is
    and with several groups in one: milliseconds of one call."""

    weight_shape: tuple[int, ...]
    groups: int
    ms_per_step: float
    """In the step, as the profiler saw it."""
    now_ms: float
    wide_ms: float


@dataclass(frozen=True, slots=True)
class DeterministicTiming:
    """The job's own calls of modules in the operator window, forward and backward, made again: milliseconds per step,
    of one thread's CPU time."""

    now_ms: float
    """With deterministic algorithms."""
    off_ms: float
    """Without."""
    unfilled_ms: float | None = None
    """With them, and new memory left as it comes; None where it is not filled."""


@dataclass(frozen=True, slots=True)
class FrozenTiming:
    """The same calls with `UnusedGradients` computed and without."""

    now_ms: float
    frozen_ms: float


@dataclass(frozen=True, slots=True)
class BlasPool:
    """A pool of threads of OpenBLAS's beside torch's team."""

    library: str
    """`libscipy_openblas64_-32a4b2a6.so`, which is NumPy's."""
    threads: int
    """Of which the caller is one."""
    cores: float
    """CPUs that the others used on average, while they worked and while they waited for work."""


@dataclass(frozen=True, slots=True)
class TracingTiming:
    """Steps of the job whose allocations `tracemalloc` traced, or whose calls Python told a function of, and steps in
    which it did not, in turns: milliseconds per step, of the training thread's CPU time."""

    frames: int
    """That `tracemalloc` keeps of every allocation; 0 where calls are traced."""
    traced_ms: tuple[float, ...]
    untraced_ms: tuple[float, ...]
    started_at: Site | None = None
    """The line that had it traced, of allocations in evidence only; None where an option or a variable did."""
    tracer: str = ""
    """Who has calls traced: a package, or the job's own function; "" for allocations."""


@dataclass(frozen=True, slots=True)
class UpdateTiming:
    """One update of the job's optimizer, timed in its process on tensors of the same shapes."""

    optimizer: str
    """`Adam`."""
    made: str
    """How the job does it: `loop`, over one tensor after another, `foreach` or `fused`."""
    tensors: int
    now_ms: float
    foreach_ms: float | None = None
    """With `foreach=True`; None where it is so, or not known to this optimizer."""
    fused_ms: float | None = None
    """With `fused=True`; likewise."""
    groups: int = 1
    """Groups of parameters of which it updates some."""
    groups_needed: int = 1
    """How many there are, once those of the same options are one."""
    now_together_ms: float | None = None
    """With so many groups, as the job does it; None where it has no more."""
    foreach_together_ms: float | None = None
    """The same with `foreach=True` ..."""
    fused_together_ms: float | None = None
    """... and with `fused=True`."""
    part: float = 1.0
    """The share of all elements that these times are of."""


@dataclass(frozen=True, slots=True)
class ParameterTiming:
    """What goes through the parameters that the job's optimizer updates, timed in its process on tensors of the same
    shapes: milliseconds of all of them, one by one and by operators that take lists."""

    norms_ms: float
    """Norms of the gradients, each read."""
    norms_together_ms: float
    """The same by one operator, and one read."""
    averages_ms: float
    """Averages of the parameters, in place: two operators each."""
    averages_together_ms: float
    zeroed_ms: float
    """Gradients filled with zeros, then added to."""
    released_ms: float
    """Gradients let go, then new ones taken as they come."""
    tensors: int
    """All that have gradients."""
    part: float = 1.0
    """The share of their elements that these times are of."""


@dataclass(frozen=True, slots=True)
class ProfilerTiming:
    """A small network's passes in the job's process, without a profiler and with one like the job's."""

    ops: int
    """Operators of one forward and backward pass, as the call-site window counts them."""
    off_ms: float
    on_ms: float
    """One forward and backward pass, CPU time."""

    @property
    def us_per_op(self) -> float:
        """What an operator takes longer."""
        return max(0.0, self.on_ms - self.off_ms) * 1000 / max(1, self.ops)


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """The operators of one of the job's own forwards, timed in its process: on their own shapes, and as one batch."""

    copies: int
    """Requests in the batch."""
    ops: int
    """Operators of one forward."""
    timed: int
    """Those of them that could be timed."""
    one_ms: float
    batch_ms: float
    """CPU time of one thread, the least over the rounds."""
    threads: int
    """Intra-op threads of the job."""
    team_ms: float
    single_ms: float
    """One forward's operators by the clock beside the job's other threads: with all intra-op threads, with one."""
    rounds: int = 1

    def of(self, requests: float) -> float:
        """Milliseconds of a batch of so many requests, on the line through the two that were timed."""
        return self.one_ms + max(0.0, self.batch_ms - self.one_ms) / max(1, self.copies - 1) * (requests - 1)


@dataclass(frozen=True, slots=True)
class FinalTimings:
    """The operators of the window, timed after the job's last step; a job that is killed or leaves by `os._exit` has
    none."""

    dtype: tuple[DtypeTiming, ...] = ()
    onednn: tuple[LibraryTiming, ...] = ()
    layout: tuple[LayoutTiming, ...] = ()
    groups: tuple[GroupsTiming, ...] = ()
    batch: BatchTimings | Missing = NOT_TIMED
    passes: BatchReplay | Missing = NOT_TIMED
    deterministic: DeterministicTiming | Missing = NOT_TIMED
    frozen: FrozenTiming | Missing = NOT_TIMED
    ways: PassWays | Missing = NOT_TIMED
    in_parts: tuple[InParts, ...] = ()
    in_turn: tuple[InTurn, ...] = ()
    repeated_rows: tuple[RepeatedRows, ...] = ()
    siblings: tuple[Siblings, ...] = ()
    experts: tuple[Experts, ...] = ()
    pools: tuple[BlasPool, ...] = ()
    update: UpdateTiming | Missing = NOT_TIMED
    parameters: ParameterTiming | Missing = NOT_TIMED
    convolutions: tuple[ConvolutionTiming, ...] = ()
    recurrent: tuple[Recurrent, ...] = ()
    """In the place of those of the window."""
    attention: tuple[Attention, ...] = ()
    """Likewise."""


@dataclass(frozen=True, slots=True)
class VectorExtensionTiming:
    """One of the job's own operators, timed after the job with the limiting variables and without."""

    name: str
    shapes: str
    dtype: str
    calls_per_step: float
    limited_milliseconds: float
    full_milliseconds: float
    """One call."""


@dataclass(frozen=True, slots=True)
class VectorExtensionTimings:
    """timings.json: what variables that limit vector extensions cost on this machine, timed after the job."""

    variables: tuple[tuple[str, str], ...]
    timings: tuple[VectorExtensionTiming, ...]
    rounds: int
    """The two interpreters took turns so often; timings are medians."""
    full_capability: str
    """What torch's own kernels use without the variables."""
