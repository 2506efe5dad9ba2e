"""The user's lines: by the calls and operators that they issue, and by all the time that they take. Per step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from .base import NO_LINE, Missing, Site


@dataclass(frozen=True, slots=True)
class CallSite:
    """A line in the job's loop that calls something worth knowing, from the call-site window or a wrapper."""

    kind: str
    """`empty_cache`, `item`, `to_float64`, ..."""
    site: Site
    calls_per_step: float
    ms_per_step: float
    detail: str = ""
    by_library: bool = False
    """Of a scalar read: a library reads for a purpose of its own (torch.distributions checks arguments)."""
    purpose: str = ""
    """Of a scalar read of the job's own: the statement is an `assert`, or a `nan_test`; "" where it is neither."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The loop that makes a line run many times per step, the user's or one that calls what is the user's."""

    line: int
    """Its first, in the file of the function that it is in."""
    header: str
    """`for t in range(steps)`, cut short where it is long."""
    carries: tuple[str, ...] = ()
    """What the line needs from the iteration before (`state`); empty where iterations could be computed together."""
    across: str = ""
    """Where it needs something: a loop around this one whose iterations could be computed together."""
    across_line: int = 0
    of_layers: bool = False
    """Each iteration calls the element itself: a layer, a loss, a function."""
    by_library: bool = False
    """It is an installed package's, which calls the user's function: a solver, a trainer's own evaluation."""


@dataclass(frozen=True, slots=True)
class Issued:
    """An operator that a line issued."""

    name: str
    """`mm`."""
    share: float
    """Of the time of all operators of the line that were looked at."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the job, by the operators that it issued in one part of the step. Per step.

    The backward pass is the line of the `backward()` call, an optimizer that of its `step()` call.
    """

    site: Site
    part: str
    """`forward`, `backward`, `optimizer`, `input_wait`, `checkpoint` or `other`."""
    ops_per_step: float
    ms_per_step: float
    """Its operators and the pauses before them. Recorded as they were watched; in evidence in an ordinary step,
    estimated: the part's length times `share`."""
    ops_ms: float
    """In its operators alone, as measured in the window."""
    share: float
    """Of the part."""
    ops_share: float
    """Of the part's operators, by number."""
    runs_per_step: float
    """How often the line ran, estimated; 1 for a line that calls a whole network once."""
    passes_per_update: float = 0.0
    """Backward passes that it asked for, or took part in, between one optimizer's update and the next, of whichever."""
    loop: Loop | None = None
    """Only of a line that runs often, and of a loop whose source could be read."""
    faults_per_step: float = 0.0
    """Page faults of the process in its operators and in the pauses before them, as counted in the window."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Of tensors that it made while the loop was in none of the model's passes."""
    operators: tuple[Issued, ...] = ()
    """The longest of those that it issued."""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """One line of the user's code in one part of the step, Python and all that it calls in libraries. Per step.

    Unlike `Line` it needs no operator: a data set, a simulator or a protocol has such lines too.
    """

    site: Site
    part: str
    """As of `Line`, or `gc`."""
    called: bool
    """Whether its function was entered inside the part: what makes a batch, and not the loop that waits for it."""
    ms_per_step: float
    """Recorded as it was watched; in evidence in an ordinary step, estimated: the part's length times `share`."""
    share: float
    """Of the part; of the making, for the lines of a batch that a worker made."""
    loaders: tuple[tuple[int, float], ...] = ()
    """Of a line that was called while the loop waited for a batch: the loaders that it waited for, each with its
    fraction of the line's time; empty where that is not known."""
    runs_per_step: float = 0.0
    """How often it ran, counted, once for each time round a loop; in a worker per batch."""

    def fraction(self, loaders: Collection[int]) -> float:
        """Of its time, while the loop waited for one of these; all of it where that is not known."""
        return sum(part for loader, part in self.loaders if loader in loaders) if self.loaders else 1.0


@dataclass(frozen=True, slots=True)
class IndexUse:
    """Indices into the classes of a head, or into the rows of a table, in the call-site window."""

    kind: Literal["target", "lookup"]
    """Classes that a loss was given as targets, or rows of an embedding table."""
    size: int
    """Classes or rows that there are."""
    width: int
    """Numbers in a row; 0 for classes."""
    count: int
    """Indices seen, in all profiled steps."""
    distinct: int
    """Different ones among them."""
    highest: int

    @property
    def used(self) -> int:
        """Classes or rows up to the highest that was seen."""
        return self.highest + 1

    @property
    def unused_share(self) -> float:
        """Of all classes or rows: those above the highest that was seen."""
        return max(0.0, 1 - self.used / self.size) if self.size > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SitesWindow:
    """All that the call-site window saw."""

    steps: int
    ops: int
    """Operators in all of them."""
    calls: tuple[CallSite, ...]
    lines: tuple[Line, ...]
    indices: tuple[IndexUse, ...] = ()


@dataclass(frozen=True, slots=True)
class DiscardedGradients:
    """Gradients of parameters that an optimizer updates, which one line's backward passes filled and `zero_grad` took
    away before anybody read them. Per step, of the passes that were followed in a step or two."""

    at: Site
    """The line that asked for the passes."""
    module: str
    """The class of the model that most of them are of."""
    parameters: int
    elements: int
    """Theirs."""
    passes_per_step: float
    whole_ms: float
    """In operators of the passes that lead to nothing else: they need not run at all."""
    part_ms: float
    """In those that compute one of these and something that is of use: a part of them need not be computed."""
    useless: bool = False
    """No gradient that these passes filled was read."""
    called_at: Site | None = None
    """The line that called the model before the first of the passes."""


@dataclass(frozen=True, slots=True)
class GradientReads:
    """What use the job was seen to make of gradients, in a step or two."""

    reads_per_step: float
    """Reads of a `.grad` of `UnusedGradients` from Python, but for those that let it go or compare it with None; and
    what `autograd.grad` was asked for."""
    updated: bool
    """Somebody other than an optimizer has changed the parameters."""
    read_at: Site | None = None
    """The first line that read one."""
    discarded: tuple[DiscardedGradients, ...] = ()
    """Recorded as they were watched; in evidence in an ordinary step."""
    passes_ms: float = 0.0
    """Per step, of all backward passes that were followed."""
    norms_per_step: float = 0.0
    """Reads of a `.grad` of `UnusedGradients` by a library that clips or logs the norm of all gradients: none of the
    others."""


@dataclass(frozen=True, slots=True)
class RepeatedWork:
    """A line all of whose work, or nearly, computes values that are there already. Per step, outside of the making of
    batches and of optimizers."""

    at: Site
    """The outermost line that computes nothing new."""
    is_unchanged: bool
    """The step before has computed the same; else the step itself has, at `first_at` or in the same line."""
    ops_per_step: float
    """Operators that need not run; views of tensors do not count."""
    forward_ms: float
    """In these. Recorded as they were watched; in evidence in an ordinary step."""
    backward_ms: float
    """In nodes of the backward pass that belong to them, where the same pass goes through those of the first
    computation: the gradients could be added before."""
    operators: tuple[str, ...]
    """The longest of them: `mm`."""
    of_parameters: bool = False
    """Some of them read parameters of a model."""
    on_same_data: bool = False
    """No step has read a batch, or any other tensor from elsewhere, that the one before had not."""
    first_at: Site | None = None
    """The line that leads to the first computation in the same step and not to this one."""


@dataclass(frozen=True, slots=True)
class AsideWork:
    """A line all of whose work, or nearly, is of no use to training. Per step, outside of the making of batches, the
    backward pass and optimizers."""

    at: Site
    """The outermost line that computes nothing that training needs."""
    ops_per_step: float
    """Views of tensors do not count."""
    forward_ms: float
    """In these operators. Recorded as they were watched; in evidence in an ordinary step."""
    operators: tuple[str, ...]
    """The longest of them: `sort`."""
    grows: bool = False
    """They made more numbers in the last of the steps than in the one before."""
    later_ms: float = 0.0
    """In evidence, of what grows: in the mean step of those seen, if it has grown from the first one on."""


@dataclass(frozen=True, slots=True)
class GrowingWork:
    """A line that goes through more numbers with each step: the beginning of one tensor, or parts that are joined, and
    what is computed of that. Recorded as it was watched; in evidence in an ordinary step."""

    at: Site
    forward_ms: float
    ops_per_step: float
    numbers: int
    """In the largest tensor that it reads."""
    more: int
    """With each step."""
    operators: tuple[str, ...]
    """The longest of them: `std_mean`."""
    steps: int = 0
    """In evidence, that were seen."""
    starts_anew: bool = False
    """In evidence: steps do not get as much longer as it would make them, so that it begins anew now and then."""


@dataclass(frozen=True, slots=True)
class SampleWork:
    """What steps compute of their samples alone, with tensors that did not change until the job's end: the next epoch
    computes it again."""

    lines: tuple[AsideWork, ...]
    """The dearest first; nothing of their work is anything else."""
    bytes: int
    """Of results that other work reads, per sample."""
    batch: int
    """Samples in a step."""
    rows: int = 0
    """Of a tensor in memory that steps take their samples from; 0 without one."""
    by_loader: bool = False
    """Some of the samples come from a loader."""


@dataclass(frozen=True, slots=True)
class Equivalent:
    """Operators for which others make the same numbers in less time: tried on the job's own tensors. Per step; recorded
    as they were watched, in evidence in an ordinary step."""

    kind: str
    """order: of products of matrices. one-hot, diagonal, sparse: a product with a matrix of that kind. pairs: the size
    of their differences, added. product, distance: numbers repeated for one another, multiplied or subtracted and
    squared, and then added. top, rank, second-sort: a sort of which a few numbers, places of single ones or their ranks
    are used. ignored: scores that a loss is told to ignore. grown: what is joined to be joined again with more. trace:
    a product of matrices of which the diagonal is read. diagonal-factor, diagonal-solve: matrices that are diagonal,
    factored or solved with. by-rows: a product with a sparse matrix by coordinates. transform: of a length that is made
    of large primes, against one of fewer numbers. written, taken-apart: parts of a tensor, each with a node of its own
    in the backward pass. columns: of a table, looked up. by-kind: weights copied for each row, one of a few kinds.
    inverse: of a matrix, that is multiplied with. triangular-determinant, triangular-inverse: computed of such matrices
    as of any. einsum: of more than two operands, in another order, forwards and backwards timed. shuffled, chosen:
    permutations of which a few places are used, by torch and by NumPy's `choice`. penalty: squares of parameters.
    indexed: rows that are picked by an index, for the sake of their gradients. layer-norm, gelu, silu, softmax,
    log-softmax: made of single operators."""
    at: Site
    """The line of the first of these operators ..."""
    then_at: Site
    """... and of the last."""
    times_per_step: float
    shape: tuple[int, ...]
    """Of the largest thing that need not be made; of what is nearly empty."""
    forward_ms: float
    """In these operators ..."""
    backward_ms: float
    """... and in their nodes of the backward pass."""
    other_forward_ms: float
    """The other way, once its operators have been called."""
    other_backward_ms: float
    """Timed for rows that are indexed; else twice that."""
    equation: str = ""
    """Of an einsum, with its operands in the other order."""

    @property
    def now_ms(self) -> float:
        """In all, as it is."""
        return self.forward_ms + self.backward_ms

    @property
    def other_ms(self) -> float:
        """In all, the other way."""
        return self.other_forward_ms + self.other_backward_ms


@dataclass(frozen=True, slots=True)
class SingleDerivatives:
    """Calls of `torch.autograd.grad` at one line for derivatives of outputs of which others were asked for before in
    the same step. Per step; timed by passes that nobody listened to."""

    at: Site
    calls_per_step: float
    ms_per_step: float
    """In these calls."""
    saved_ms: float
    """What they would take less in one pass together with those before them."""
    created: bool
    """A graph of them is recorded, which a backward pass goes through later (`create_graph=True`)."""


@dataclass(frozen=True, slots=True)
class PassAgain:
    """Backward passes from one line through a graph that another one has gone through in the same step, though nobody
    has touched or read a gradient in between. Per step."""

    at: Site
    ops_per_step: float
    """That these passes call again."""
    ms_per_step: float
    """In them."""


@dataclass(frozen=True, slots=True)
class RepeatsWindow:
    """All that the window of repeated work saw."""

    rows: tuple[RepeatedWork, ...]
    """The dearest first."""
    ops_ms: float
    """Per step, of all operators beside those that make batches."""
    followed: int = 0
    """Forward passes on held-out data whose outputs were followed, in all."""
    scores_ms: float = 0.0
    """Of one of them: operators that compute from its output."""
    scores_used: bool = False
    """Some of them are part of training: a backward pass goes through them."""
    trained_on: bool = False
    """So it does through operators that read the held-out data."""
    asks: tuple[str, ...] = ()
    """Windows that look closer at what this one saw."""
    equivalents: tuple[Equivalent, ...] = ()
    """The one first that saves the most."""
    derivatives: tuple[SingleDerivatives, ...] = ()
    """The same."""
    passes_again: tuple[PassAgain, ...] = ()
    """The dearest line first."""
    metrics: tuple[AsideWork, ...] = ()
    """What ends in numbers that are read or kept, the dearest line first."""
    unused: tuple[AsideWork, ...] = ()
    """What ends in tensors that nobody reads; the same."""
    growing: tuple[GrowingWork, ...] = ()
    """The dearest first."""
    first_step: int = 0
    """The first of the steps that were watched."""


@dataclass(frozen=True, slots=True)
class BetweenWindow:
    """Operators without a graph of one of these steps: what it computes more than once, and what others could stand
    for. In all."""

    rows: tuple[RepeatedWork, ...]
    """The dearest first."""
    equivalents: tuple[Equivalent, ...]
    """The one first that saves the most."""
    ops_ms: float
    """Of all its operators beside those that make batches."""
    lines: tuple[CodeLine, ...] = ()
    """Of the user's code that issue hardly any operators, the largest first."""
    total_ms: float = 0.0
    """Of all lines."""
    ran: tuple[Site, ...] = ()
    """Lines of the user's code, those that compute on tensors too."""


@dataclass(frozen=True, slots=True)
class SubnormalNumbers:
    """What a step takes longer because of numbers that are smaller than the smallest normal one, and not 0. Per step;
    recorded as it was watched, in evidence in an ordinary step."""

    ops_ms: float
    """Of all operators."""
    met_ms: float
    """Of those that meet such numbers."""
    forward_ms: float
    """Less in operators of the forward pass and between the passes, with such numbers taken for 0: each computed again
    on copies of its arguments, both ways in turns."""
    backward_ms: float
    """The same of the backward pass ..."""
    optimizer_ms: float
    """... and of the optimizer's step."""
    share: float
    """Of the numbers of one tensor, the most that were such; sampled."""
    operators: tuple[str, ...]
    """Those that it takes longest: `mm`."""
    at: Site | Missing = NO_LINE
    """The line that leads to most of it."""

    @property
    def saved_ms(self) -> float:
        """In all."""
        return self.forward_ms + self.backward_ms + self.optimizer_ms


@dataclass(frozen=True, slots=True)
class LinesWindow:
    """The line window, or one batch that a worker made line by line."""

    lines: tuple[CodeLine, ...]
    """The largest first."""
    total_ms: float
    """Of all lines in all parts."""
    first_step: int = 0
    """Number of the step that it opened at."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """All calls of a function that were looked at, also those with arguments that came once only."""

    calls: int
    calls_per_step: float
    arguments: int
    """Different ones."""
    apart: float
    """Calls from one to the next with the same arguments, on average, as a share of all calls."""
    ms_per_step: float
    """In all of them."""


@dataclass(frozen=True, slots=True)
class SameResult:
    """A function of the user's, or one of a library's that reads files for the user, that is called again for what it
    has returned before: with the same arguments, by their contents, and with the same result each time. Per step; in a
    worker per batch."""

    function: str
    """`mel_bank`, `Clips.window`; `numpy.load`."""
    at: Site
    """The line that calls it; where several do, or a library, its own first line. Of a library's function the line that
    calls it most."""
    defined_at: Site
    """Its first line."""
    part: str
    """As of `CodeLine`."""
    calls_per_step: float
    """With arguments that it was given more than once; calls inside such a call of another function count as its."""
    arguments: int
    """Different ones among them: 1 where it returns the same each time."""
    ms_per_step: float
    """In these calls, by some that were timed without being watched; in evidence no more than the part takes."""
    within: tuple[Site, ...] = ()
    """First lines of functions that only it calls, as far as they were looked at."""
    loader: int = -1
    """That the loop waited for meanwhile; -1 where it waited for none, or that is not known."""
    drawn: Drawn | None = None
    """None in recordings that lack it."""
    reads: bool = False
    """Whether it is a library's, and reads a file."""


@dataclass(frozen=True, slots=True)
class SameResultsWindow:
    """All that was seen of the user's functions in three steps, or in as many batches that a worker made."""

    rows: tuple[SameResult, ...]
    """The dearest first."""


@dataclass(frozen=True, slots=True)
class EpochStartsWindow:
    """The same of steps that take long at equal distances, such as those that an epoch starts in: functions that return
    in one of them what they have returned in another. Per such step, in `ms_per_step` too."""

    starts: int
    """Looked at so far."""
    rows: tuple[SameResult, ...]
    """The dearest first."""


@dataclass(frozen=True, slots=True)
class LateSharding:
    """A line at which a worker keeps its share of the samples after all of them were made, in one batch."""

    site: Site
    samples: int
    """Kept."""
    share_number: int
    """Which of the shares it keeps, from 0 on."""
    shards: int
    """How many shares there are: one sample is kept of as many."""
    share: float
    """Of making the batch, in what makes samples before that line, the kept ones too."""

    @property
    def discarded_share(self) -> float:
        """Of making the batch, in samples that are thrown away."""
        return self.share * (1 - 1 / self.shards)


@dataclass(frozen=True, slots=True)
class LateShardingSeen:
    """The batch of a worker that was looked at for it."""

    rows: tuple[LateSharding, ...]
