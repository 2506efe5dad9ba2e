"""Threads beside a training loop that wait for a lock of the job's own, so that one computes where several could."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import LockWait

from .case import Forwards, Limits

_SAVED = (0.5, 1.0)
"""Of what the CPUs allow: threads that no longer wait for this lock meet in the interpreter's."""


def waits_for_lock(case: Forwards, limits: Limits) -> Finding | None:
    """By the threads that were seen to wait, and the CPUs that nobody used meanwhile: a thread that need not wait has
    one of those, so the work of a step is done by more threads at once; at best the loop waits for nobody then."""
    beside, step = case.beside_training, case.step
    if beside is None:
        return None
    seen, host = beside
    if not seen.rows or host.job_cpus <= 0:
        return None
    at_once = min(case.usable, host.job_cpus + seen.waiting)
    faster_ms = step.step_ms * (1 - host.job_cpus / max(host.job_cpus, at_once))
    waits_ms = seen.loop_waits * step.step_ms
    low, high = (fraction * min(faster_ms, waits_ms) for fraction in _SAVED)
    if high < limits.min_share * step.step_ms:
        return None
    worst = seen.rows[0]
    return Finding(
        id="PD06.waits-for-lock",
        severity=severity(high / step.step_ms, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="threads wait for {lock} while {idle:CPU idles|CPUs idle}, and the training loop waits {loop_ms} per "
        "step ({loop_share})",
        reasoning="on average {waiting:thread waits|threads wait} for it, most often here while it is held at "
        "{held_at}, so they compute one after another",
        evidence=(
            Measurement("lock", f"`{worst.lock}`", "text", "as the line names it"),
            Measurement("idle", round(host.idle_cpus, 1), "count", "CPUs idle"),
            milliseconds("loop_ms", waits_ms, "per step in which the loop's thread waits for a lock or another thread"),
            share("loop_share", seen.loop_waits, "of the step"),
            Measurement("waiting", round(seen.waiting, 1), "count", "threads that wait for a lock of the job's own"),
            Measurement("held_at", f"{worst.held_at.file}:{worst.held_at.line}", "text", "where the lock was held"),
            Measurement("looks", seen.looks, "count", "looks at all threads"),
        ),
        location=location(worst.site),
        fix=_fix(case, worst),
        savings=savings(
            step,
            low,
            high,
            "the waiting threads at work on the CPUs that idle, as far as the loop waits for them; half of that to all",
        ),
    )


def _fix(case: Forwards, wait: LockWait) -> Fix:
    if case.seen.threads > 1:
        return Fix(
            text="Give each thread a copy of the model and bring its weights up to date now and then, so that nobody "
            "computes while holding the lock.",
            code=f"policy = copy.deepcopy(model)  # in each thread\nwith {wait.lock}:\n"
            "    policy.load_state_dict(model.state_dict())\noutputs = policy(inputs)",
            risk="The copies are some steps older than the model: an agent acts on weights that are not the newest.",
        )
    return Fix(
        text="Hold the lock only while what it protects is read or changed, and compute outside of it.",
        code=f"with {wait.lock}:\n    batch = list(shared)  # a snapshot\nresult = compute(batch)",
        risk="What is computed is of a snapshot, which may have changed meanwhile.",
    )
