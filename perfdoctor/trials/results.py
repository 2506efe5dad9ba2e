"""What the trials of a recording come to: the plan and the blocks, judged again from what is on disk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..diagnosis.diagnoses import Combined, Diagnosis
from ..diagnosis.examine import combined
from ..diagnosis.findings import Finding, Fix, Measurement, Severity
from ..diagnosis.measured import COMBINED, Gain, Range, Trial, Trials, Verdict
from ..evidence.model import Missing, Step
from ..injected._perfdoctor_probe.remedies import catalogue
from ..recording.model import Recording
from ..recording.trials import Block, PlannedTrial
from .analyse import LEAST_LAUNCHES, by_trial, gain_of, measured, of_any_launch, start_s, verdict_of


def results(recording: Recording) -> Trials | None:
    """None when no remedy was to be tried."""
    plan = recording.trials
    if plan is None:
        return None
    blocks = by_trial(_lead_blocks(recording))
    trials = {planned.trial: _trial(planned, blocks.get(planned.trial, ())) for planned in plan.trials}
    single = [trial for number, trial in trials.items() if number != plan.together]
    return Trials(
        single=tuple(single),
        together=trials.get(plan.together),
        seconds=plan.seconds,
        typical_error=plan.typical_error,
        past=plan.past,
        problem=plan.problem,
    )


def _lead_blocks(recording: Recording) -> Sequence[Block]:
    """Of one rank: all ranks do the same at the same steps, and a step is as long for each."""
    ranks = sorted((p for p in recording.processes if p.blocks), key=lambda p: p.rank)
    return ranks[0].blocks if ranks else ()


def _trial(planned: PlannedTrial, blocks: Sequence[Block]) -> Trial:
    verdict, gain, reason = _outcome(planned, blocks)
    names = planned.remedy.split(COMBINED)
    entries = [catalogue.parse(name)[0] for name in names]
    return Trial(
        remedy=planned.remedy,
        verdict=verdict,
        gain=gain,
        predicted=Range(*planned.predicted) if planned.predicted else None,
        findings=planned.findings,
        reason=reason,
        text="; ".join(catalogue.described(name) for name in names),
        keep="\n".join(dict.fromkeys(filter(None, map(catalogue.kept, names)))),
        language="bash" if all(entry.language == "bash" for entry in entries) else "python",
        numerics=any(entry.numerics for entry in entries),
        per_sample=any(block.work != 1 for block in blocks),
        start_s=start_s(blocks) if any(entry.starts_s for entry in entries) else None,
        caution="; ".join(dict.fromkeys(entry.caution for entry in entries if entry.caution)),
    )


def _outcome(planned: PlannedTrial, blocks: Sequence[Block]) -> tuple[Verdict, Gain | None, str]:
    if planned.why_not:
        return Verdict.NOT_TRIED, None, planned.why_not
    if planned.launches:
        return _of_launches(planned.launches)
    verdict, gain, reason = measured(blocks)
    if verdict is Verdict.NOT_MEASURED and planned.broke:
        return verdict, gain, "the job ended while it was tried"
    if gain is None:
        return verdict, gain, reason
    gain = of_any_launch(gain)
    return verdict_of(gain), gain, reason


def _of_launches(pairs: Sequence[tuple[float, float]]) -> tuple[Verdict, Gain | None, str]:
    """The launch is the unit: (step without, step with), milliseconds."""
    if len(pairs) < LEAST_LAUNCHES:
        return Verdict.NOT_MEASURED, None, f"only {len(pairs)} of {LEAST_LAUNCHES} pairs of launches took steps"
    factor, low, high = gain_of([math.log(without / treated) for without, treated in pairs])
    gain = Gain(factor, low, high, len(pairs), step_ms=sorted(without for without, _ in pairs)[len(pairs) // 2])
    return verdict_of(gain), gain, ""


# -- what trials do to the advice -------------------------------------------------------------------------


def with_trials(diagnosis: Diagnosis, trials: Trials | None) -> Diagnosis:
    """The diagnosis with its trials: what was measured takes the place of what was predicted, and advice that measured
    as harmful or useless is taken back."""
    step = diagnosis.evidence.step
    if trials is None:
        return diagnosis
    if isinstance(step, Missing):
        return replace(diagnosis, trials=trials)
    checks = tuple(
        result.changed(lambda finding: _corrected(finding, _proving(finding, trials), step))
        for result in diagnosis.checks
    )
    together = combined(checks, diagnosis.evidence)
    if trials.together is not None and trials.together.gain is not None:
        together = Combined(*_saved(trials.together.gain, step.step_ms), step_ms=step.step_ms)
    return replace(diagnosis, checks=checks, trials=trials, combined=together)


def _saved(gain: Gain, step_ms: float) -> tuple[float, float]:
    """Milliseconds of a step at the ends of the interval; nothing below a gain of one."""
    return step_ms * max(0.0, 1 - 1 / gain.low), step_ms * max(0.0, 1 - 1 / gain.high)


def _proving(finding: Finding, trials: Trials) -> Sequence[Trial]:
    """Those of the finding's own fix."""
    others = {other.remedy for other in finding.fix.alternatives}
    return [trial for trial in trials.of(finding.fingerprint) if trial.remedy not in others]


def _corrected(finding: Finding, trials: Sequence[Trial], step: Step) -> Finding:
    """The finding with what its best remedy measured; without advice, where all were tried and none can help."""
    gains = [trial.gain for trial in trials if trial.gain is not None]
    if not gains or len(gains) < len(trials) or not all(gain.no_use for gain in gains):
        to_keep = [trial.gain for trial in trials if trial.gain is not None and trial.keep]
        if not to_keep:
            return finding
        low, high = _saved(max(to_keep, key=lambda gain: gain.factor), finding.savings.of(step))
        measured = replace(
            finding.savings,
            low_ms=low,
            high_ms=high,
            ceiling_ms=max(high, finding.savings.ceiling_ms),
            method="measured by a trial on the running job",
        )
        return replace(finding, savings=measured, severity=finding.severity if low > 0 else Severity.NOTE)
    best = max(gains, key=lambda gain: gain.factor)
    hurts = verdict_of(best) is Verdict.HURT
    text = (
        "Leave it as it is: the textbook's fix was tried on this job and made it slower, {tried} as fast "
        "[{tried_low}, {tried_high}]."
        if hurts
        else "Not recommended here: the fix was tried on this job, and it ran {tried} as fast "
        "[{tried_low}, {tried_high}]."
    )
    numbers = (
        Measurement("tried", best.factor, "ratio", "speed with the fix, measured"),
        Measurement("tried_low", best.low, "ratio", "at least"),
        Measurement("tried_high", best.high, "ratio", "at most"),
    )
    return replace(
        finding,
        severity=Severity.NOTE,
        evidence=(*finding.evidence, *numbers),
        fix=Fix(text=text, remedies=finding.fix.remedies),
        savings=replace(finding.savings, low_ms=0.0, high_ms=0.0),
    )
