"""Runs the checks on every rank's evidence and makes one diagnosis of it: merged, billed once, ranked."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from ..config.settings import Config, is_selected
from ..evidence.causes import Ledger
from ..evidence.model import Evidence, Missing, RunEvidence, Step
from .calibration import calibrated
from .diagnoses import CheckResult, Combined, Diagnosis, ranked
from .findings import Finding, Measurement, Part, Savings, Severity
from .integrity import notes
from .outcomes import Check, Outcome, OutcomeKind
from .suppress import CommentLookup, Sifted, sift, suppression_notes
from .whose import whose

WORTH = 0.05 / 1.05
"""Of the step, saved: a speed-up of 1.05x. An ill saves it even at the lower end of its range, and what does not do so
in the middle of its range is not worth a reader's time."""
_OF_A_CEILING = 1 / 3
"""Where only the most that can be saved is known, what counts as sure: of two stretches of a job whose waiting for data
was mended, one got back 62 % of what the device had idled, and the other 34 %."""
_MIDDLE = 0.5
_LOWER_PART = 0.25
"""Of the range of an opportunity that a check tells as one, up to where it may save less: nothing is wrong there, so
its gain alone speaks for it. Of 20 that were told by the middle 14 gained 1.03x or more when tried on whole programs;
this leaves out two of the six that did not, and one of the 14. For a range that begins at nothing it comes to 1.10x in
the middle, which the allocator's needs anyway."""
_EXPLAINED = 0.5
"""A general fix of which less than this is left, once causes with a name are billed, is no cause of its own; nor is
anything else where steps have grown, once that is billed."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration has to say, and where to ask about comments in the user's source."""

    config: Config
    today: date
    comment: CommentLookup


def examine(run: RunEvidence, checks: Sequence[tuple[Check[Any], Any]], rules: Rules) -> Diagnosis:
    """A diagnosis of `run` by `checks`, each with its limits; checks that are not selected are left out."""
    slowest = run.slowest
    wanted = [(check, limits) for check, limits in checks if is_selected(check.code, rules.config)]
    results, sifted = [], []
    for check, limits in wanted:
        merged = _merged([(evidence, _run(check, limits, evidence)) for evidence in run.ranks], slowest)
        outcome = _weighed(merged, slowest.step)
        kept = sift(outcome.findings, rules.config, rules.today, rules.comment)
        sifted.append(kept)
        results.append(CheckResult(check.code, check.name, check.title, _without(outcome, kept), kept.suppressed))
    results = _billed(sorted(results, key=lambda result: result.code), slowest)
    judged = {r.code for r in results if r.outcome.kind in (OutcomeKind.FOUND, OutcomeKind.CLEAR)}
    return Diagnosis(
        evidence=slowest,
        checks=tuple(results),
        combined=combined(results, slowest),
        integrity=(*notes(run, results), *suppression_notes(rules.config, sifted, judged, rules.today)),
    )


def _without(outcome: Outcome, sifted: Sifted) -> Outcome:
    """The outcome without its suppressed findings; clear when none is left."""
    if outcome.kind is not OutcomeKind.FOUND or sifted.kept == outcome.findings:
        return outcome
    if sifted.kept:
        return replace(outcome, findings=sifted.kept)
    return Outcome(OutcomeKind.CLEAR, "all its findings are suppressed", outcome.measurements)


def _run(check: Check[Any], limits: Any, evidence: Evidence) -> Outcome:
    """One check on one rank; what it raises becomes an outcome, and the other checks go on."""
    try:
        outcome: object = check.examine(evidence, limits)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{place.filename.rpartition('/')[2]}:{place.lineno}"
        return Outcome(OutcomeKind.CRASHED, f"{type(error).__name__}: {error} ({where})")
    if isinstance(outcome, Outcome):
        return outcome
    return Outcome(OutcomeKind.CRASHED, f"it returned {type(outcome).__name__}, not an Outcome")


def _merged(outcomes: Sequence[tuple[Evidence, Outcome]], slowest: Evidence) -> Outcome:
    """One outcome for all ranks: a crash shows, then findings, then what the slowest rank says."""
    crashed = next((outcome for _, outcome in outcomes if outcome.kind is OutcomeKind.CRASHED), None)
    if crashed is not None:
        return crashed
    of_slowest = next(outcome for evidence, outcome in outcomes if evidence is slowest)
    found = [(evidence, finding) for evidence, outcome in outcomes for finding in outcome.findings]
    if not found:
        return of_slowest
    same: dict[tuple[str, int, str], list[tuple[Evidence, Finding]]] = {}
    for evidence, finding in found:
        same.setdefault(finding.key, []).append((evidence, finding))
    merged = []
    for group in same.values():
        speaker = _for_all(group, slowest)
        if speaker is not None:
            merged.append(replace(speaker, rank_note=whose([one for one, _ in group], [one for one, _ in outcomes])))
    if not merged:
        return of_slowest
    measurements = of_slowest.measurements or next(o.measurements for _, o in outcomes if o.findings)
    return Outcome(OutcomeKind.FOUND, measurements=measurements, findings=tuple(merged))


def _for_all(group: Sequence[tuple[Evidence, Finding]], slowest: Evidence) -> Finding | None:
    """One rank speaks for all: the one that the others wait for, else the costliest, since a step is as slow as its
    slowest rank. What a rank loses while it would only wait for that one costs the job nothing: None where all is that.
    """
    together = slowest.communication
    of_slowest = next((finding for evidence, finding in group if evidence is slowest), None)
    if of_slowest is not None and not isinstance(together, Missing):
        return of_slowest
    evidence, worst = max(group, key=lambda pair: pair[1].savings.ceiling_ms)
    if isinstance(together, Missing) or worst.savings.part is Part.EPOCH or worst.savings.high_ms <= 0:
        return worst
    left = 1 - min(1.0, together.waits_ms(evidence.rank) / worst.savings.high_ms)
    return replace(worst, savings=_scaled(worst, left, claimed=worst.savings.claimed)) if left > 0 else None


def _weighed(outcome: Outcome, step: Step | Missing) -> Outcome:
    """Alarms for what is surely worth a fix, opportunities for what may be, and nothing below: a job at the threshold
    is not alarmed in one launch and clear in the next. What no saving could be predicted for stays an opportunity."""
    if outcome.kind is not OutcomeKind.FOUND or isinstance(step, Missing):
        return outcome
    kept = []
    for finding in outcome.findings:
        # By what the check itself says: a range that was widened has another middle.
        if finding.savings.high_ms > 0 and _is_small(finding, step, _LOWER_PART if finding.is_opportunity else _MIDDLE):
            continue
        of_ms = finding.savings.of(step)
        saved = _widened(finding, step).savings
        least = _OF_A_CEILING * saved.ceiling_ms if saved.ceiling_only else saved.low_ms
        sure = least >= WORTH * of_ms
        kept.append(replace(finding, severity=finding.severity if sure else Severity.NOTE))
    return replace(outcome, findings=tuple(kept)) if kept else _clear_of(outcome, step)


def _is_left_little(finding: Finding, step: Step) -> bool:
    """Whether others claim so much of its time that its fix would be no speed-up any more. What is not predicted stays
    while anything is left."""
    saved = finding.savings
    unpredicted = saved.high_ms == 0 < saved.ceiling_ms
    return saved.claimed > 0 and not unpredicted and _is_small(finding, step)


def _is_small(finding: Finding, step: Step, part: float = _MIDDLE) -> bool:
    """Whether its fix is no speed-up of 1.05x so far up its range, or at most, where no more is known."""
    saved = finding.savings
    told = saved.high_ms if saved.ceiling_only else saved.low_ms + part * (saved.high_ms - saved.low_ms)
    return told < WORTH * saved.of(step)


def _clear_of(outcome: Outcome, step: Step, beside: str = "") -> Outcome:
    """Clear, with the most that one of the findings would have saved."""
    best = max(outcome.findings, key=lambda finding: finding.savings.low_ms + finding.savings.high_ms)
    gain = Measurement("best_gain", best.savings.high_ms / best.savings.of(step), "share", "of the step, saved at most")
    reason = f"nothing that would be a speed-up of 1.05x{beside}: {best.id} would save {{best_gain}} at most"
    return Outcome(OutcomeKind.CLEAR, reason, (gain, *outcome.measurements))


# -- billing ----------------------------------------------------------------------------------------------


def _pools(step: Step) -> dict[str, float]:
    """Milliseconds that can be saved, by pool. Compute and `other` share one: threads and types act on both."""
    parts = step.parts
    return {
        "input": parts.input_wait,
        "gc": parts.gc,
        "rest": step.working_ms,
        "communication": parts.communication,
        "epoch": step.irregular_ms,
    }


_POOL = {
    Part.INPUT_WAIT: "input",
    Part.GC: "gc",
    Part.COMPUTE: "rest",
    Part.OTHER: "rest",
    Part.COMMUNICATION: "communication",
    Part.EPOCH: "epoch",
}


_SPILLS = ("input", "gc")
"""Pools of waits: what causes one may cost the rest of the step too, by what it frees there or pushes out of caches."""


def _split(pool: str, ms: float, pools: Mapping[str, float]) -> list[tuple[str, float]]:
    """Milliseconds by the pool that they are taken from: what one of waits does not hold comes from the rest."""
    own = min(ms, pools[pool])
    return [(pool, own), ("rest", min(ms - own, pools["rest"]))] if pool in _SPILLS else [(pool, own)]


def _within(savings: Savings, pools: Mapping[str, float]) -> Savings:
    """No more than there is."""
    most = sum(ms for _, ms in _split(_POOL[savings.part], savings.ceiling_ms, pools))
    if savings.ceiling_ms <= most or savings.ceiling_ms <= 0:
        return savings
    low, high = min(savings.low_ms, most), min(savings.high_ms, most)
    return replace(savings, ceiling_ms=most, low_ms=low, high_ms=high, share=savings.share * most / savings.ceiling_ms)


def _billed(results: list[CheckResult], evidence: Evidence) -> list[CheckResult]:
    """Cap the ceilings so that no millisecond is billed twice: ills in order of rank, but a cause before a fix that
    would help against anything, and growth before all. When ills explain most of what one would save, it is an
    opportunity.

    Opportunities act on what ills leave, each for itself: they are other ways to the same time, and trials try them so.
    """
    step = evidence.step
    if isinstance(step, Missing):
        return results
    pools = _pools(step)
    ledgers = {pool: Ledger(ms) for pool, ms in pools.items()}
    capped: dict[tuple[str, int, str], Finding] = {}
    grown: set[str] = set()
    for whole in sorted(ranked(results), key=lambda f: (f.is_opportunity, not f.savings.first, f.savings.general)):
        finding = replace(whole, savings=_within(whole.savings, pools))
        ceiling = finding.savings.ceiling_ms
        asked = [(ledgers[pool], ms) for pool, ms in _split(_POOL[finding.savings.part], ceiling, pools)]
        left = sum(min(ms, ledger.left_ms) if finding.is_opportunity else ledger.take(ms) for ledger, ms in asked)
        scale = min(1.0, left / ceiling) if ceiling > 0 else 1.0
        billed = finding if scale == 1.0 else replace(finding, savings=_scaled(finding, scale))
        pool = _POOL[finding.savings.part]
        explained = (finding.savings.general or pool in grown) and scale < _EXPLAINED
        if finding.savings.first and not finding.is_opportunity:
            grown.add(pool)
        capped[finding.key] = replace(billed, severity=Severity.NOTE) if explained else billed
    billed_results = [result.changed(lambda finding: capped[finding.key]) for result in results]
    kept = [replace(result, outcome=_without_small(result.outcome, step)) for result in billed_results]
    # Last: how far a prediction may be off costs nobody else anything.
    return [result.changed(lambda finding: _widened(finding, step)) for result in kept]


def _widened(finding: Finding, step: Step) -> Finding:
    saved = finding.savings
    if saved.ceiling_only:
        return finding
    return replace(finding, savings=calibrated(saved, finding.id.partition(".")[0], saved.of(step)))


def _without_small(outcome: Outcome, step: Step) -> Outcome:
    """Without opportunities of which ills leave too little; clear when none is left."""
    kept = tuple(f for f in outcome.findings if not (f.is_opportunity and _is_left_little(f, step)))
    return (
        _clear_of(outcome, step, " beside the ills")
        if outcome.findings and not kept
        else replace(outcome, findings=kept)
    )


def _scaled(finding: Finding, scale: float, claimed: float | None = None) -> Savings:
    """`claimed`: by other findings; what was taken off, unless it is said."""
    saved = finding.savings
    return replace(
        saved,
        ceiling_ms=saved.ceiling_ms * scale,
        low_ms=saved.low_ms * scale,
        high_ms=saved.high_ms * scale,
        share=saved.share * scale,
        claimed=1 - scale if claimed is None else claimed,
    )


def combined(results: Sequence[CheckResult], evidence: Evidence) -> Combined | None:
    """All fixes of ills together. Within a pool they act on what the others left; between pools they add up, except
    that what is to run beside the rest of the step (loading, in workers) needs enough of that rest to be left.

    Predictions miss one by one, so the range is that of errors which are independent: from the middle of all, the root
    of the sum of the squares by which each moves the whole when it alone is at its end.

    Where one of them saves at the start of an epoch, the step is the steady one with what irregular ones add to each.
    """
    findings = [finding for finding in ranked(results) if not finding.is_opportunity]
    if isinstance(evidence.step, Missing) or not findings:
        return None
    pools = _pools(evidence.step)
    if all(finding.savings.part is not Part.EPOCH for finding in findings):
        pools["epoch"] = 0.0
    middles = [(f.savings.low_ms + f.savings.high_ms) / 2 for f in findings]

    def saved(number: int, ms: float) -> float:
        """With the fix of that number at `ms`, all others at their middle."""
        each = [*middles[:number], ms, *middles[number + 1 :]]
        return _saved_together(
            [(_POOL[f.savings.part], ms, f.savings) for f, ms in zip(findings, each, strict=True)], pools
        )

    middle = saved(0, middles[0])
    below, above = (
        math.hypot(*(saved(number, getattr(f.savings, end)) - middle for number, f in enumerate(findings)))
        for end in ("low_ms", "high_ms")
    )
    return Combined(
        low_ms=max(0.0, middle - below),
        high_ms=min(middle + above, sum(pools.values())),
        step_ms=max(f.savings.of(evidence.step) for f in findings),
    )


def _saved_together(savings: Sequence[tuple[str, float, Savings]], pools: dict[str, float]) -> float:
    """Milliseconds that all of `savings`, (pool, milliseconds, where from), take off the step."""
    left = dict(pools)
    for pool, saved_ms, _ in savings:
        for one, ms in _split(pool, saved_ms, pools):
            left[one] *= 1 - (ms / pools[one] if ms > 0 else 0.0)
    beside = [(saved.ceiling_ms, saved.lanes) for _, _, saved in savings if saved.lanes]
    if beside:
        rest = left["rest"] + left["gc"]
        # A batch that takes longer than the new rest of the step is waited for again.
        left["input"] = max(left["input"], *(ms / lanes - rest for ms, lanes in beside))
    return sum(pools.values()) - sum(left.values())
