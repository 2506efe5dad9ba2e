"""From pairs of launches and their recordings to the verdict. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..evidence.model import Missing
from . import fingerprint
from .budgets import judge_budgets
from .compare import WORK, compare, compare_pairs
from .decision import Decision, Policy, decide, decide_share
from .findings import FINDING, certain, new_findings
from .metrics import COLLECTIONS, H2D_SHARE, STEP_TIME, Metrics, collections_metric, metrics
from .model import AFTER, BEFORE, Assume, Judgement, Metric, Unit, Verdict, decisive, overall, some
from .samples import ALL_IN, CORE, Pair, ratios

_LABELS = {CORE: "uncontended step", ALL_IN: "step with everything in it"}
_NAMED = 3
"""Metrics in the gate's one sentence; the report lists them all."""
_BUSY = 0.05
"""Wait for a CPU, as a share of the job's time, that a reader of the verdict should know of."""

Diagnoses = Mapping[str, Sequence[Diagnosis]]
"""By arm, those of the launches with windows."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a comparison gave."""

    first: Sequence[Pair]
    fresh: Sequence[Pair]
    diagnoses: Diagnoses
    controlled: bool
    """Whether the arm before has run against its A/A control."""


def other_configuration(diagnoses: Diagnoses) -> str:
    """Why the first pair does not do the same work; "" when it does."""
    one, other = (fingerprint.configuration(diagnoses[arm][0].evidence) for arm in (BEFORE, AFTER))
    unlike = fingerprint.differences(one, other)
    return f"the two arms do not do the same work: {'; '.join(unlike)}" if unlike else ""


def losses_vary(diagnoses: Diagnoses) -> bool:
    """Whether two launches of one arm differ in their losses: then those of two arms say nothing."""
    return any(
        fingerprint.losses_differ(arm[0].evidence, arm[1].evidence) for arm in (diagnoses[BEFORE], diagnoses[AFTER])
    )


def other_losses(diagnoses: Diagnoses) -> str:
    """How the losses of the two arms differ; "" when they do not."""
    return fingerprint.losses_differ(diagnoses[BEFORE][0].evidence, diagnoses[AFTER][0].evidence)


def against_itself(pairs: Sequence[Pair]) -> list[float]:
    """The log-ratios of the A/A control, of the pairs that had one."""
    return [pair.control for pair in pairs if pair.control is not None]


def control_policy(policy: Policy) -> Policy:
    """For the arm before against its A/A control: the first pair may have had none."""
    return replace(policy, first=policy.first - 1, most=policy.most - 1)


def outcome(
    seen: Gathered, policy: Policy, config: Config, fail_on: str | None, notes: list[str]
) -> tuple[Verdict, str, list[Judgement]]:
    """The verdict, its reason, and all that is judged; what else the reader should know goes into `notes`.

    `fail_on`: the level from which on a finding that is certainly new fails; None for never.
    """
    allowed = config.gate.counter_tolerance
    pairs = [*seen.first, *seen.fresh]
    decisions = decide(ratios(seen.first), ratios(seen.fresh), policy)
    if seen.controlled:
        decisions = _with_control(decisions, against_itself(pairs), policy, notes)
    judgements = [timed(name, pairs, decision) for name, decision in decisions.items()]
    judgements += [
        share("data_wait_share", "wait for data", [pair.both("wait_share") for pair in pairs], policy),
        share("gc_share", "garbage collection", [pair.both("gc_share") for pair in pairs], policy),
    ]
    kinds = {Assume.EXACT, Assume.TIGHT}
    if _counted_elsewhere(seen.diagnoses):
        notes.append("counters were taken at other steps on each arm, so they were not compared")
        kinds.remove(Assume.EXACT)
    before, after = (_launches(seen, arm, kinds) for arm in (BEFORE, AFTER))
    counted = [*compare(before, after, allowed), *_collections(pairs, allowed)]
    # Only the step time must be certain: what is known besides is told.
    judgements += [replace(j, gates=j.verdict is not Verdict.INCONCLUSIVE) for j in counted]
    now = seen.diagnoses[AFTER]
    if fail_on:
        judgements += new_findings((), certain(seen.diagnoses[BEFORE], now, fail_on))
    launches = [_as_budgeted(diagnosis, pairs) for diagnosis in now]
    judgements += judge_budgets(config.budgets, launches, now[0].ranked if now else ())
    verdict = overall(judgements)
    delay = median(max(pair.both("delay_share")) for pair in pairs)
    if delay > _BUSY:
        notes.append(
            f"a busy machine: the job waited for a CPU for {100 * delay:.0f} % of its time (median over launches)"
        )
    return verdict, reason(verdict, judgements, decisions), judgements


_BUDGETED = {STEP_TIME: "all_in_ms", "data_wait_share": "wait_share", "gc_share": "gc_share"}
"""Metrics that pairs measure too, and the field of `Side`."""


def _as_budgeted(diagnosis: Diagnosis, pairs: Sequence[Pair]) -> Metrics:
    """A launch's metrics, with what the verdict is about as the pairs measured it: a budget is held against the number
    that the verdict shows, not against a launch with windows in it."""
    known = metrics(diagnosis.evidence)
    sides = {name: median(getattr(pair.after, field) for pair in pairs) for name, field in _BUDGETED.items()}
    return known | {name: replace(known[name], value=value) for name, value in sides.items()}


def passes_itself(control: Sequence[float], policy: Policy) -> Decision:
    """The arm before against its A/A control."""
    return decide({CORE: control}, {}, control_policy(policy))[CORE]


def _with_control(
    decisions: dict[str, Decision], control: Sequence[float], policy: Policy, notes: list[str]
) -> dict[str, Decision]:
    """What is said about times, unless the A/A control fails."""
    itself = passes_itself(control, policy)
    if itself.verdict is Verdict.PASS:
        notes.append("A/A control: the arm before passes against a second copy of itself")
        return decisions
    said = f"the A/A control fails: the arm before differs from a second copy of itself: {itself.reason}"
    doubt = Verdict.INCONCLUSIVE
    return {n: d if d.verdict is doubt else Decision(doubt, d.seen, said) for n, d in decisions.items()}


def _launches(seen: Gathered, arm: str, kinds: Collection[Assume]) -> list[Metrics]:
    """What is counted and what memory was, launch by launch."""
    elsewhere = {"peak_rss_bytes", *(COLLECTIONS if seen.first[0].before.collections else ())}
    found = []
    for diagnosis in seen.diagnoses[arm]:
        wanted = metrics(diagnosis.evidence)
        names = [name for name, metric in wanted.items() if metric.assume in kinds]
        if not isinstance(wanted[H2D_SHARE].value, Missing):
            names.append(H2D_SHARE)
        found.append({name: wanted[name] for name in names if name not in elsewhere})
    # Launches with a profiler in them hold more memory.
    clean = [*seen.first[2:], *seen.fresh] or seen.first
    peaks = [(pair.before if arm == BEFORE else pair.after).peak_rss_bytes for pair in clean]
    return found + [
        {"peak_rss_bytes": Metric("peak_rss_bytes", "bytes", Assume.TIGHT, peak, "peak memory")} for peak in peaks
    ]


def _counted_elsewhere(diagnoses: Diagnoses) -> bool:
    """Counters count only where all launches counted the same steps."""
    counters = [diagnosis.evidence.counters for arm in diagnoses.values() for diagnosis in arm]
    return len({(c.first_step, c.steps) for c in counters if not isinstance(c, Missing)}) > 1


def grown_counters(diagnoses: Diagnoses, allowed: Mapping[str, float]) -> list[str]:
    """Labels of exact counters that grew beyond what is allowed, in every launch that counted: no time is needed to
    know that it regressed."""
    judged = _counters(diagnoses, allowed)
    return [one.label for one in judged if one.verdict is Verdict.REGRESSION and one.gates]


def counters_agree(diagnoses: Diagnoses, allowed: Mapping[str, float]) -> bool:
    """Whether operators were counted, and both arms count the same of everything: the same work, as far as counted."""
    judged = [one for one in _counters(diagnoses, allowed) if one.verdict is not Verdict.NOT_JUDGED]
    return any(one.name in WORK for one in judged) and all(one.verdict is Verdict.PASS for one in judged)


def _counters(diagnoses: Diagnoses, allowed: Mapping[str, float]) -> Sequence[Judgement]:
    """The exact ones; none where the arms were counted at other steps."""
    if _counted_elsewhere(diagnoses):
        return ()
    before, after = (
        [
            {name: metric for name, metric in metrics(diagnosis.evidence).items() if metric.assume is Assume.EXACT}
            for diagnosis in diagnoses[arm]
        ]
        for arm in (BEFORE, AFTER)
    )
    return compare(before, after, allowed)


def _collections(pairs: Sequence[Pair], allowed: Mapping[str, float]) -> list[Judgement]:
    """Over the same steps of each pair; launches that run alone are judged by their recordings."""
    if not pairs[0].before.collections:
        return []
    counts = [zip(pair.before.collections, pair.after.collections, strict=True) for pair in pairs]
    return [
        compare_pairs(collections_metric(generation, 0.0), both, allowed.get(COLLECTIONS[generation], 0.0))
        for generation, both in enumerate(zip(*counts, strict=True))
    ]


# ---------------------------------------------------------------------------------------------------------
# Times and shares as judgements, and all of them in one sentence


def timed(name: str, pairs: Sequence[Pair], decision: Decision) -> Judgement:
    """A step time; only that of the uncontended step makes a whole gate inconclusive."""
    both = [pair.both("core_ms" if name == CORE else "all_in_ms") for pair in pairs]
    return _judged(name, _LABELS[name], "ms", Assume.TIMED, both, decision)


def share(name: str, label: str, pairs: Sequence[tuple[float, float]], policy: Policy) -> Judgement:
    """A share of the step, before and after in each pair."""
    decision = decide_share([now - was for was, now in pairs], median(now for _, now in pairs), policy)
    return _judged(name, label, "share", Assume.SHARE, pairs, decision)


def _judged(
    name: str, label: str, unit: Unit, assume: Assume, pairs: Sequence[tuple[float, float]], decision: Decision
) -> Judgement:
    change = low = high = None
    if (seen := decision.seen) is not None:
        width = seen.bound(0.025)
        change, low, high = seen.mean, seen.mean - width, seen.mean + width
        if assume is Assume.TIMED:  # a log-ratio
            change, low, high = math.expm1(change), math.expm1(low), math.expm1(high)
    return Judgement(
        name, label, unit, assume, median(was for was, _ in pairs), median(now for _, now in pairs),
        decision.verdict, decision.reason, change, low, high,
        gates=name == CORE or decision.verdict is not Verdict.INCONCLUSIVE,
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
