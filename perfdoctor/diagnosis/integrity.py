"""How far to trust this run: codes PD90 and up."""

from __future__ import annotations

from collections.abc import Sequence

from ..evidence.causes import SIGNS
from ..evidence.model import Evidence, Missing, RunEvidence
from .findings import CheckResult, IntegrityNote, Measurement, OutcomeKind, Severity

_FEW_STEPS = 20
"""Below, the interval of the step is wider than most findings."""
_OVERHEAD = 0.01
"""perfdoctor's own budget for steps of 5 ms and more."""


def notes(run: RunEvidence, results: Sequence[CheckResult]) -> tuple[IntegrityNote, ...]:
    """Everything that limits what the numbers are worth."""
    evidence = run.slowest
    asked = (_steps(evidence), _contention(evidence), _overhead(evidence), _debugging(evidence))
    found = [note for note in asked if note is not None]
    found += [
        IntegrityNote("PD94", "check-crashed", Severity.ERROR, f"{result.code} {result.name} crashed")
        for result in results
        if result.outcome.kind is OutcomeKind.CRASHED
    ]
    found += [
        # Without numbers a message is no template: braces stay as they are.
        IntegrityNote("PD95", "recording-incomplete", Severity.NOTE, note)
        for note in run.notes[:5]
    ]
    return tuple(found)


def _steps(evidence: Evidence) -> IntegrityNote | None:
    step = evidence.step
    if isinstance(step, Missing):
        return IntegrityNote("PD90", "too-few-steps", Severity.ERROR, str(step))
    if step.count >= _FEW_STEPS:
        return None
    return IntegrityNote(
        "PD90",
        "too-few-steps",
        Severity.WARNING,
        "only {steps:steady step was|steady steps were} seen; let the job run longer for firmer numbers",
        (Measurement("steps", step.count, "count"),),
    )


def _contention(evidence: Evidence) -> IntegrityNote | None:
    host = evidence.host
    if isinstance(host, Missing):
        return None
    delay = host.job_run_delay_share
    starved = not isinstance(delay, Missing) and delay > SIGNS.delay_share
    crowded = host.others_cpus >= SIGNS.others_cpus and host.idle_cpus < SIGNS.idle_cpus
    if not starved and not crowded:
        return None
    measurements = [Measurement("others_cpus", round(host.others_cpus, 2), "count", "cores used by other processes")]
    message = "the machine was contended: other processes used {others_cpus:core}"
    if not isinstance(delay, Missing):
        measurements.append(Measurement("delay", delay, "share", "of its runnable time the job waited for a CPU"))
        message += ", and the job waited for a CPU for {delay} of its runnable time"
    return IntegrityNote("PD92", "contended-machine", Severity.WARNING, message, tuple(measurements))


def _overhead(evidence: Evidence) -> IntegrityNote | None:
    cost, step = evidence.own_cost, evidence.step
    if isinstance(cost, Missing) or isinstance(step, Missing):
        return None
    share = cost.hooks_us_per_step / 1000 / step.step_ms
    if share <= _OVERHEAD:
        return None
    return IntegrityNote(
        "PD93",
        "own-overhead",
        Severity.NOTE,
        "perfdoctor's hooks took {hooks} per step, {share} of it: steps this short are measured less exactly",
        (
            Measurement("hooks", cost.hooks_us_per_step / 1000, "ms"),
            Measurement("share", share, "share"),
        ),
    )


def _debugging(evidence: Evidence) -> IntegrityNote | None:
    aids = evidence.debugging
    if isinstance(aids, Missing) or not aids:
        return None
    return IntegrityNote(
        "PD96",
        "debugging-on",
        Severity.WARNING,
        "debugging is on, and what it costs is in every number of this report: {aids}. Switch it off: {off}",
        (
            Measurement("aids", ", ".join(aid.name for aid in aids), "text"),
            Measurement("off", "; ".join(f"`{aid.off}`" for aid in aids), "text"),
        ),
    )
