"""From pairs of launches and their recordings to the verdict. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ..config.settings import Config
from ..diagnosis.findings import Diagnosis
from ..evidence.model import Missing
from . import fingerprint
from .budgets import judge_budgets
from .compare import compare, compare_pairs
from .decision import Decision, Policy, decide
from .findings import certain, new_findings
from .metrics import COLLECTIONS, H2D_SHARE, Metrics, collections_metric, metrics
from .model import AFTER, BEFORE, Assume, Judgement, Metric, Verdict, overall
from .rounds import CORE, Rounds, reason, share, timed

_BUSY = 0.05
"""Wait for a CPU, as a share of the job's time, that a reader of the verdict should know of."""

Diagnoses = Mapping[str, Sequence[Diagnosis]]
"""By arm, those of the launches with windows."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a comparison gave."""

    first: Rounds
    fresh: Rounds
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
    everything = seen.first + seen.fresh
    decisions = decide(seen.first.ratios, seen.fresh.ratios, policy)
    if seen.controlled:
        decisions = _with_control(decisions, everything.control, policy, notes)
    judgements = [timed(name, everything, decision) for name, decision in decisions.items()]
    judgements += [
        share("data_wait_share", "wait for data", everything.waits, policy),
        share("gc_share", "garbage collection", everything.collections, policy),
    ]
    before, after = (_launches(seen, arm) for arm in (BEFORE, AFTER))
    if _counted_elsewhere(seen.diagnoses):
        notes.append("counters were taken at other steps on each arm, so they were not compared")
        before, after = (_without_counters(launches) for launches in (before, after))
    counted = [*compare(before, after, allowed), *_collections(everything, allowed)]
    # Only the step time must be certain: what is known besides is told.
    judgements += [replace(j, gates=j.verdict is not Verdict.INCONCLUSIVE) for j in counted]
    now = seen.diagnoses[AFTER]
    if fail_on:
        judgements += new_findings((), certain(seen.diagnoses[BEFORE], now, fail_on))
    launches = [metrics(diagnosis.evidence) for diagnosis in now]
    judgements += judge_budgets(config.budgets, launches, now[0].ranked if now else ())
    verdict = overall(judgements)
    delay = median(everything.delays) if everything.delays else 0.0
    if delay > _BUSY:
        notes.append(
            f"a busy machine: the job waited for a CPU for {100 * delay:.0f} % of its time (median over launches)"
        )
    return verdict, reason(verdict, judgements, decisions), judgements


def _with_control(
    decisions: dict[str, Decision], control: Sequence[float], policy: Policy, notes: list[str]
) -> dict[str, Decision]:
    """What is said about times, unless the A/A control fails."""
    against_itself = decide({CORE: control}, {}, control_policy(policy))[CORE]
    if against_itself.verdict is Verdict.PASS:
        notes.append("A/A control: the arm before passes against a second copy of itself")
        return decisions
    said = f"the A/A control fails: the arm before differs from a second copy of itself: {against_itself.reason}"
    doubt = Verdict.INCONCLUSIVE
    return {n: d if d.verdict is doubt else Decision(doubt, d.seen, said) for n, d in decisions.items()}


def _launches(seen: Gathered, arm: str) -> list[Metrics]:
    """What is counted and what memory was, launch by launch."""
    elsewhere = {"peak_rss_bytes", *(COLLECTIONS if seen.first.counts else ())}
    found = []
    for diagnosis in seen.diagnoses[arm]:
        wanted = metrics(diagnosis.evidence)
        names = [name for name, metric in wanted.items() if metric.assume in (Assume.EXACT, Assume.TIGHT)]
        if not isinstance(wanted[H2D_SHARE].value, Missing):
            names.append(H2D_SHARE)
        found.append({name: wanted[name] for name in names if name not in elsewhere})
    # Launches with a profiler in them hold more memory.
    clean = (seen.first.rss[2:] + seen.fresh.rss) or seen.first.rss
    peaks = [pair[0 if arm == BEFORE else 1] for pair in clean]
    return found + [
        {"peak_rss_bytes": Metric("peak_rss_bytes", "bytes", Assume.TIGHT, peak, "peak memory")} for peak in peaks
    ]


def _counted_elsewhere(diagnoses: Diagnoses) -> bool:
    """Counters count only where all launches counted the same steps."""
    counters = [diagnosis.evidence.counters for arm in diagnoses.values() for diagnosis in arm]
    return len({(c.first_step, c.steps) for c in counters if not isinstance(c, Missing)}) > 1


def _without_counters(launches: Sequence[Metrics]) -> list[Metrics]:
    return [{n: m for n, m in launch.items() if m.assume is not Assume.EXACT} for launch in launches]


def _collections(everything: Rounds, allowed: Mapping[str, float]) -> list[Judgement]:
    """Over the same steps of each pair; launches that run alone are judged by their recordings."""
    if not everything.counts:
        return []
    found = []
    for generation, name in enumerate(COLLECTIONS):
        pairs = [(was[generation], now[generation]) for was, now in everything.counts]
        found.append(compare_pairs(collections_metric(generation, 0.0), pairs, allowed.get(name, 0.0)))
    return found
