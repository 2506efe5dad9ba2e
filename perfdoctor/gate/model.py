"""What the gate compares and what it says: metrics, judgements, the verdict of a whole gate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from ..evidence.model import Missing

BEFORE, AFTER = "was", "now"
"""The arms, in names of directories: of one length, for the length of a path moves memory about."""

BUDGET = "assert:"
"""Names of judgements that are about a budget of the configuration begin with it."""

Unit = Literal["count", "bytes", "ms", "s", "share", "flops", "samples/s"]


class Assume(str, Enum):
    """What a metric's repetitions are assumed to do; decides how two of them are compared."""

    EXACT = "exact"
    """The same in every launch: any increase counts."""
    TIGHT = "tight"
    """Nearly the same: the median of some launches against a margin."""
    TIMED = "timed"
    """Noisy: `decision.py`, with the launch as the unit of replication."""
    SHARE = "share"
    """A share of the step: the same rule on differences in percentage points."""
    INFO = "info"
    """Reported, never judged."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity of one launch."""

    name: str
    """Stable for ever: `aten_ops`, `op:aten::clone`."""
    unit: Unit
    assume: Assume
    value: float | Missing
    label: str = ""
    """For a report; the name with spaces when empty."""

    @property
    def title(self) -> str:
        return self.label or self.name.replace("_", " ")


class Verdict(str, Enum):
    """How a comparison, or a whole gate, ended. In order of gravity."""

    NOT_JUDGED = "not-judged"
    """Information only, or missing on one arm."""
    IDENTICAL = "identical"
    """Both arms run the very same files, so nothing was measured."""
    PASS = "pass"
    IMPROVEMENT = "improvement"
    INCONCLUSIVE = "inconclusive"
    """Too noisy, or too few launches: shown as such, never as a pass."""
    REGRESSION = "regression"
    NOT_COMPARABLE = "not-comparable"
    """The two arms do not do the same work, or one of them is broken."""
    FAILED = "failed"
    """The job failed on one arm: there is nothing to compare, only why."""

    @property
    def gravity(self) -> int:
        """The larger one wins in a whole gate. A broken arm hides everything; a regression wins over doubt."""
        return list(Verdict).index(self)


@dataclass(frozen=True, slots=True)
class Judgement:
    """One metric, before and after."""

    name: str
    label: str
    unit: Unit
    assume: Assume
    before: float | Missing
    after: float | Missing
    verdict: Verdict
    reason: str
    """One sentence with its numbers."""
    change: float | None = None
    """Relative for times, absolute otherwise."""
    low: float | None = None
    high: float | None = None
    """95 % interval of `change`, for what is timed."""
    gates: bool = True
    """Whether it can fail the gate; what flickers is shown only."""

    @property
    def is_budget(self) -> bool:
        return self.name.startswith(BUDGET)


@dataclass(frozen=True, slots=True)
class Why:
    """What explains a regression."""

    parts: tuple[tuple[str, float, float], ...] = ()
    """Part of the step, milliseconds before and after."""
    counters: tuple[str, ...] = ()
    """Sentences: what is counted more often, and where."""
    findings: tuple[str, ...] = ()
    """Findings that the arm before does not have."""
    gone: tuple[str, ...] = ()
    """Findings that the arm after does not have any more."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One arm of a comparison, as a reader knows it."""

    name: str
    """`merge base 4f2c1a9`, `working tree`, `perf-baseline.json`."""
    recording: str = ""
    """Directory of the recording that is kept; "" when there is none."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """A whole gate."""

    verdict: Verdict
    reason: str
    before: Arm
    after: Arm
    judgements: tuple[Judgement, ...] = ()
    why: Why | None = None
    notes: tuple[str, ...] = ()
    """What the reader should know: a dirty tree, a demoted counter, a busy machine."""
    pairs: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Raw log-ratios by timed metric, one per pair of launches: samples are kept, not summaries."""
    seconds: float = 0.0
    fail_on_doubt: bool = True
    """Whether INCONCLUSIVE fails (`--on-inconclusive fail`)."""


def overall(judgements: Sequence[Judgement]) -> Verdict:
    """The verdict of a whole gate: the gravest of those that count; inconclusive when nothing was judged."""
    counted = [j.verdict for j in judgements if j.gates and j.verdict is not Verdict.NOT_JUDGED]
    return max(counted, key=lambda verdict: verdict.gravity, default=Verdict.INCONCLUSIVE)


# ---------------------------------------------------------------------------------------------------------
# What every kind of gate says alike in its one sentence


def some(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are: "peak memory, kernels per step and 2 more"."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def decisive(verdict: Verdict, judgements: Sequence[Judgement], most: int, worse: str = "worse") -> list[str]:
    """What made the verdict: metrics by name, then budgets, which may be about too little of something and are
    therefore named apart. `worse` says how a metric regressed."""
    metric = {Verdict.REGRESSION: worse, Verdict.IMPROVEMENT: "better"}.get(verdict, "not certain")
    budget = "outside budget" if verdict is Verdict.REGRESSION else "budget not judged"
    deciding = [j for j in judgements if j.gates and j.verdict is verdict]
    named = {
        metric: [j.label for j in deciding if not j.is_budget],
        budget: [j.label for j in deciding if j.is_budget],
    }
    return [f"{intro}: {some(labels, most)}" for intro, labels in named.items() if labels]
