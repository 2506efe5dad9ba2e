"""Two arms that are stored: recordings, baselines, reports; or launches of now against a baseline. Pure.

Counters and memory are judged in full; times only where they can be compared, otherwise they are for information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from statistics import stdev

from ..config.settings import Config
from ..diagnosis.diagnoses import Diagnosis
from ..evidence.model import Missing
from .baseline import Baseline
from .budgets import judge_budgets
from .compare import compare
from .decision import trimmed_mean
from .findings import in_all, new_findings
from .fingerprint import differences, losses_differ, torch_minor
from .metrics import COUNTED, STEP_TIME, Metrics
from .model import Arm, Assume, GateResult, Judgement, Metric, Verdict, decisive, overall
from .why import explain

LEAST_LAUNCHES = 8
"""For times: fewer do not say how much they vary."""
LEAST_NOW = 2
"""Launches to be compared with them: one may have been unlucky."""
LEAST_TOLERANCE = 0.15
"""Against stored times: a machine is not the same one a week later ..."""
ADVISORY = 0.30
"""... and on another one only this much is worth a word."""
_NAMED = 4
"""Metrics in the gate's one sentence; the report lists them all."""


@dataclass(frozen=True, slots=True)
class StoredArm:
    """One arm, from whatever kind of file or directory, or from launches of now."""

    place: str
    content: Baseline
    diagnoses: Sequence[Diagnosis] = ()
    """Of recordings: they can say why, and what is found."""
    recording: str = ""
    launches: Sequence[Metrics] = field(default=())
    """Of now, with what they lack and why; without them those of `content`."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The job, as far as it is known: reports put what has no line of its own on its script."""
        return self.diagnoses[0].evidence.job.command if self.diagnoses else (self.content.job,)

    @property
    def counted(self) -> bool:
        """Whether its launches were counted: the window holds memory while it is open."""
        return any(name in self.content.metrics for name in COUNTED)

    @property
    def metrics(self) -> Sequence[Metrics]:
        """Of each launch."""
        return self.launches or self.content.as_launches()


def judge(
    before: StoredArm,
    after: StoredArm,
    config: Config,
    *,
    today: date,
    fail_on: str | None = None,
    allow_loss_change: bool = False,
) -> GateResult:
    """The whole gate. `fail_on`: the severity from which on a new finding fails; None for never."""
    arms = Arm(before.place, before.recording), Arm(after.place, after.recording)
    unlike = differences(before.content.configuration, after.content.configuration)
    if unlike:
        return GateResult(Verdict.NOT_COMPARABLE, f"not the same work: {'; '.join(unlike)}", *arms)
    notes = []
    if before.diagnoses and after.diagnoses:
        differ = losses_differ(before.diagnoses[0].evidence, after.diagnoses[0].evidence)
        if differ and not allow_loss_change:
            said = f"not the same work: {differ} (if that is meant, or the job has no seed: --allow-loss-change)"
            return GateResult(Verdict.NOT_COMPARABLE, said, *arms)
        if differ:
            notes.append(f"the two arms compute something else: {differ} (allowed)")
    judgements = _counted(before, after, config.gate.counter_tolerance, notes)
    judgements += _timed(before, after, today, config.gate.max_age_days, notes)
    if fail_on is not None and not after.diagnoses:
        notes.append(f"{after.place} does not say how grave its findings are: none can fail (name a recording)")
    elif fail_on is not None:
        judgements += new_findings(before.content.known, in_all(after.diagnoses, fail_on))
    budgets = [budget for budget in config.budgets if after.diagnoses or not budget.is_check]
    judgements += judge_budgets(budgets, after.metrics, after.diagnoses[0].ranked if after.diagnoses else ())
    verdict = overall(judgements)
    said = _reason(verdict, judgements)
    if verdict in (Verdict.PASS, Verdict.IMPROVEMENT) and not _enough(judgements):
        verdict = Verdict.INCONCLUSIVE
        said = "neither counters nor times could be compared, and memory alone says too little"
        notes.append("`perfdoctor baseline write` and the recordings of a gate have counters")
    why = None
    if verdict is Verdict.REGRESSION and after.diagnoses:
        why = explain(next(iter(before.diagnoses), None), after.diagnoses[0], judgements)
    return GateResult(verdict, said, *arms, tuple(judgements), why, tuple(notes))


def _counted(before: StoredArm, after: StoredArm, allowed: Mapping[str, float], notes: list[str]) -> list[Judgement]:
    """Counters and memory."""
    wanted = (Assume.EXACT, Assume.TIGHT)
    was, now = (
        [{name: m for name, m in launch.items() if m.assume in wanted} for launch in arm.metrics]
        for arm in (before, after)
    )
    judgements = list(compare(was, now, allowed))
    old, new = (torch_minor(arm.content.machine) for arm in (before, after))
    if old != new:
        judgements = [replace(j, gates=False) for j in judgements]
        notes.append(
            f"torch {old} then, {new} now: counters are shown only; `perfdoctor baseline write` makes them count again"
        )
    if before.counted != after.counted:
        judgements = [replace(j, gates=False) if j.assume is Assume.TIGHT else j for j in judgements]
        which = before.place if before.counted else after.place
        notes.append(f"only {which} was counted, which takes memory: memory is shown only (record both arms alike)")
    return judgements


def _timed(before: StoredArm, after: StoredArm, today: date, max_age_days: int, notes: list[str]) -> list[Judgement]:
    """Times, and what is for information."""
    why_not = _why_times_do_not_count(before, after, today, max_age_days)
    if why_not:
        notes.append(f"times are shown only: {why_not}")
    found = []
    for name, stored in before.content.metrics.items():
        if stored.assume in (Assume.EXACT, Assume.TIGHT):
            continue
        values = [launch[name].value for launch in after.metrics if name in launch]
        numbers = [value for value in values if not isinstance(value, Missing)]
        found.append(_time(stored.metric(name, trimmed_mean(stored.launches)), stored.launches, numbers, not why_not))
    return found


def _time(metric: Metric, before: Sequence[float], after: Sequence[float], gates: bool) -> Judgement:
    old = metric.value
    assert not isinstance(old, Missing)
    new = trimmed_mean(after) if after else Missing("not measured")
    judgement = Judgement(
        metric.name, metric.label, metric.unit, metric.assume, old, new, Verdict.NOT_JUDGED, "for information",
        gates=gates,
    )  # fmt: skip
    if isinstance(new, Missing) or metric.assume is not Assume.TIMED or old <= 0:
        change = None if isinstance(new, Missing) or metric.assume is Assume.TIMED else new - old
        return replace(judgement, change=change, gates=False)
    spread = stdev(before) / old if len(before) > 1 else 0.0
    tolerance = max(3 * spread, LEAST_TOLERANCE) if gates else ADVISORY
    ratios = [value / old - 1 for value in after]
    said = f"launches: {len(before)} before, {len(after)} now; tolerance {100 * tolerance:.0f} %"
    if min(ratios) > tolerance:
        verdict = Verdict.REGRESSION
    elif trimmed_mean(ratios) <= tolerance:
        verdict = Verdict.PASS
    else:
        verdict, said = Verdict.INCONCLUSIVE, f"{said}; not every launch was slower"
    middle = trimmed_mean(ratios)
    return replace(judgement, verdict=verdict, reason=said, change=middle, low=min(ratios), high=max(ratios))


def _why_times_do_not_count(before: StoredArm, after: StoredArm, today: date, max_age_days: int) -> str:
    other = differences(before.content.machine, after.content.machine)
    if other:
        return f"another machine ({'; '.join(other[:3])})"
    age = (today - before.content.written).days
    if age > max_age_days:
        return f"the baseline's age in days is {age}, and at most {max_age_days} count (`--max-age`)"
    if len(after.metrics) < LEAST_NOW:
        return f"{after.place} holds one launch, {LEAST_NOW} are needed"
    stored = before.content.metrics.get(STEP_TIME)
    count = len(stored.launches) if stored else 0
    if count < LEAST_LAUNCHES:
        need = f"`baseline write --launches {LEAST_LAUNCHES}`"
        return f"launches in the baseline: {count} of the {LEAST_LAUNCHES} needed ({need})"
    return ""


def _enough(judgements: Sequence[Judgement]) -> bool:
    """Whether something besides memory was judged."""
    return any(
        j.gates and j.verdict is not Verdict.NOT_JUDGED and (j.assume is Assume.TIMED or j.name in COUNTED)
        for j in judgements
    )


def _reason(verdict: Verdict, judgements: Sequence[Judgement]) -> str:
    """The whole gate in one sentence."""
    if verdict is Verdict.PASS:
        return "nothing that counts got worse"
    return "; ".join(decisive(verdict, judgements, _NAMED)) or "nothing was measured"
