"""The user's lines: by the calls and operators that they issue, and by all the time that they take. Per step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from .base import Site


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
    """Where it needs something: a loop around this one, or around the calls of the function that this one is in, whose
    iterations could be computed together."""
    across_at: Site | None = None
    """Its first line."""
    of_layers: bool = False
    """Each iteration calls the element itself: a layer, a loss, a function."""
    by_library: bool = False
    """It is an installed package's, which calls the user's function: a solver, a trainer's own evaluation."""
    body: Site | None = None
    """The line in its body, where the line that it makes run is in what that one calls."""


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
    asked_per_step: float = 0.0
    """How often it asked a process for an object that a manager keeps there for others (`multiprocessing.Manager`)."""

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
