"""What a step computes again, for nothing, or the long way round, as it was followed operator by operator. Per step."""

from __future__ import annotations

from dataclasses import dataclass

from .base import NO_LINE, Missing, Site
from .lines import CodeLine


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
    bare: bool = False
    """They are of tensors in no module and no optimizer, and nobody read them in all of the time."""
    recorded_at: Site | None = None
    """The line at which a graph was recorded that need not be gone through, of bare tensors."""
    handed_at: Site | None = None
    """The line that gave another model what this one made, where another backward pass needs that graph."""


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
class WeightedWork:
    """A line that multiplies by 0 what is computed for that alone. Per step."""

    at: Site
    ops_per_step: float
    """Operators that lead to nothing else that has a graph; views of tensors do not count."""
    forward_ms: float
    """In those of them at whose results nobody looks. Recorded as watched; in evidence in an ordinary step."""
    backward_ms: float
    """The same in nodes of the backward pass that belong to them."""
    operators: tuple[str, ...]
    """The longest of them: `addmm`."""


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
    of large primes, against one of fewer numbers. half-transform, real-transform: of real numbers, all of whose
    spectrum is made; back, where only the real part is read. modulated: a convolution with a kernel for each sample.
    written, taken-apart: parts of a tensor, each with a node of its own in the backward pass. columns: of a table,
    looked up. by-kind: weights copied for each row, one of a few kinds. inverse: of a matrix, that is multiplied with.
    triangular-determinant, triangular-inverse: computed of such matrices as of any. einsum: of more than two operands,
    in another order, forwards and backwards timed. shuffled, chosen: permutations of which a few places are used, by
    torch and by NumPy's `choice`. penalty: squares of parameters. indexed: rows that are picked by an index, for the
    sake of their gradients. layer-norm, gelu, silu, softmax, log-softmax: made of single operators. copied: by `clone`,
    though neither changes while both are there."""
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
    weighted: tuple[WeightedWork, ...] = ()
    """What is multiplied by 0, the dearest first."""
    growing: tuple[GrowingWork, ...] = ()
    """The dearest first."""
    first_step: int = 0
    """The first of the steps that were watched."""


@dataclass(frozen=True, slots=True)
class PartsCalled:
    """Modules that were called without gradients in evaluation mode, outside of any other module's call: parts of a
    model that a method of its own calls."""

    calls: int
    us: int
    """In them, as they were watched."""
    rows: int
    """That they were given in all, by their first arguments."""
    site: Site | None = None
    """The line outside of modules that asks for them."""


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
    parts_called: PartsCalled | None = None
    """None where there were few such calls."""


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
