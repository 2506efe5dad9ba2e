"""What pairs of launches gave, and what is said about their times and shares. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import median

from ..diagnosis.findings import Diagnosis
from ..errors import PerfdoctorError
from ..evidence.model import Missing
from ..exits import Exit
from .decision import Decision, Policy, decide_share, estimate
from .findings import FINDING
from .metrics import metrics
from .model import Assume, Judgement, Verdict, decisive, some

CORE, ALL_IN = "step_time.core", "step_time.all_in"
_LABELS = {CORE: "uncontended step", ALL_IN: "step with everything in it"}
_NAMED = 3
"""Metrics in the gate's one sentence; the report lists them all."""


Counts = tuple[float, float, float]


@dataclass(slots=True)
class Rounds:
    """What one stage gave, pair by pair; pairs are (before, after)."""

    ratios: dict[str, list[float]] = field(default_factory=lambda: {CORE: [], ALL_IN: []})
    control: list[float] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    collections: list[tuple[float, float]] = field(default_factory=list)
    core_ms: list[tuple[float, float]] = field(default_factory=list)
    all_in_ms: list[tuple[float, float]] = field(default_factory=list)
    rss: list[tuple[float, float]] = field(default_factory=list)
    counts: list[tuple[Counts, Counts]] = field(default_factory=list)
    """Garbage collections of each generation per 100 steps, of launches that take turns."""
    faults: list[tuple[float, float]] = field(default_factory=list)
    """Page faults per step, of launches that take turns."""
    delays: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.ratios[CORE])

    def __add__(self, other: Rounds) -> Rounds:
        ratios = {name: [*values, *other.ratios[name]] for name, values in self.ratios.items()}
        return Rounds(ratios, *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)[1:]))


def timed(name: str, rounds: Rounds, decision: Decision) -> Judgement:
    """A step time; only that of the uncontended step makes a whole gate inconclusive."""
    pairs = rounds.core_ms if name == CORE else rounds.all_in_ms
    seen = decision.seen
    change = low = high = None
    if seen is not None:
        width = seen.bound(0.025)
        change, low, high = (math.expm1(x) for x in (seen.mean, seen.mean - width, seen.mean + width))
    return Judgement(
        name, _LABELS[name], "ms", Assume.TIMED, median(p[0] for p in pairs), median(p[1] for p in pairs),
        decision.verdict, decision.reason, change, low, high,
        gates=name == CORE or decision.verdict is not Verdict.INCONCLUSIVE,
    )  # fmt: skip


def share(name: str, label: str, pairs: Sequence[tuple[float, float]], policy: Policy) -> Judgement:
    """A share of the step."""
    before, after = median(p[0] for p in pairs), median(p[1] for p in pairs)
    differences = [p[1] - p[0] for p in pairs]
    decision = decide_share(differences, after, policy)
    change = low = high = None
    if len(differences) >= 4:
        seen = estimate(differences)
        width = seen.bound(0.025)
        change, low, high = seen.mean, seen.mean - width, seen.mean + width
    return Judgement(
        name, label, "share", Assume.SHARE, before, after, decision.verdict, decision.reason, change, low, high,
        gates=decision.verdict is not Verdict.INCONCLUSIVE,
    )  # fmt: skip


def reason(verdict: Verdict, judgements: Sequence[Judgement], decisions: Mapping[str, Decision]) -> str:
    """The whole gate in one sentence."""
    worse = [j for j in judgements if j.gates and j.verdict is Verdict.REGRESSION]
    step = next(j for j in judgements if j.name == CORE)
    if verdict is Verdict.REGRESSION:
        times = [j for j in worse if j.assume is Assume.TIMED and j.change is not None]
        new = [j.name.partition(":")[2] for j in worse if j.name.startswith(FINDING)]
        others = [j for j in worse if j not in times and not j.name.startswith(FINDING)]
        parts = [f"the {times[0].label} is {100 * (times[0].change or 0):.1f} % slower"] if times else []
        parts += decisive(verdict, others, _NAMED, "higher")
        if new:
            parts.append(f"new: {', '.join(new)}")
        return "; ".join(parts)
    if verdict is Verdict.NOT_COMPARABLE:
        broken = next(j for j in judgements if j.verdict is Verdict.NOT_COMPARABLE)
        return f"{broken.label} {broken.reason}"
    if verdict is Verdict.IMPROVEMENT:
        if decisions[CORE].verdict is Verdict.IMPROVEMENT and step.change is not None:
            return f"the {step.label} is {-100 * step.change:.1f} % faster"
        better = [j.label for j in judgements if j.verdict is Verdict.IMPROVEMENT]
        return f"no slower, and lower: {some(better, _NAMED)}"
    doubtful = [j for j in judgements if j.gates and j.verdict is Verdict.INCONCLUSIVE and j.name != CORE]
    if doubtful and decisions[CORE].verdict is not Verdict.INCONCLUSIVE:
        return f"not certain: {doubtful[0].label}: {doubtful[0].reason}"
    return decisions[CORE].reason


def note_launches(seen: Rounds, was: Sequence[Diagnosis], now: Sequence[Diagnosis]) -> None:
    """Of launches that ran alone: medians of steps for the uncontended step, means for the other.

    Raises PerfdoctorError when one of them gave too little.
    """

    def both(metric: str) -> tuple[float, float]:
        return _mean(was, metric), _mean(now, metric)

    core, all_in = (_median_step(was), _median_step(now)), both("step_time_ms")
    seen.ratios[CORE].append(math.log(core[1] / core[0]))
    seen.ratios[ALL_IN].append(math.log(all_in[1] / all_in[0]))
    seen.core_ms.append(core)
    seen.all_in_ms.append(all_in)
    seen.waits.append(both("data_wait_share"))
    seen.collections.append(both("gc_share"))
    seen.rss.append(both("peak_rss_bytes"))


def _mean(launches: Sequence[Diagnosis], metric: str) -> float:
    """Geometric where it can be."""
    values = [metrics(diagnosis.evidence)[metric].value for diagnosis in launches]
    numbers = [value for value in values if not isinstance(value, Missing)]
    if len(numbers) < len(values):
        raise PerfdoctorError(
            f"a launch gave no {metric}: {next(v for v in values if isinstance(v, Missing))}",
            slug="too-few-steps",
            advice="let the job run longer",
            exit_code=Exit.NOT_MEASURABLE,
        )
    return math.exp(sum(map(math.log, numbers)) / len(numbers)) if min(numbers) > 0 else sum(numbers) / len(numbers)


def _median_step(launches: Sequence[Diagnosis]) -> float:
    steps = [diagnosis.evidence.step for diagnosis in launches]
    times = [step.median_ms for step in steps if not isinstance(step, Missing)]
    return math.exp(sum(map(math.log, times)) / len(times))
