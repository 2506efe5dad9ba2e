"""Garbage collection in the training loop.

What it looks at
----------------
Every pause of Python's cyclic garbage collector in the training process: how long, which generation, and, for
collections that somebody asked for, the line that did. Pauses are timed by `gc.callbacks` in every step.

Why it costs time
-----------------
Tensors are freed by reference counting; the cyclic collector only looks for cycles. Importing torch alone gives
it 170,000 objects to walk (290,000 with the compiler loaded), so each full collection takes 60 to 130 ms
however small the model is. In a plain training loop the automatic collector practically never runs a full
collection; one explicit `gc.collect()` per step turned steps of 2 ms into steps of 135 ms.

Example
-------
    for batch in loader:
        loss = train_step(batch)
        gc.collect()          # 65 times slower

How to fix
----------
Take explicit collections out of the loop, or run them once per epoch. When the automatic collector is the cost,
raise its thresholds; with several ranks, switch it off and collect on all ranks at the same step.

When it stays silent
--------------------
Below 5 % of the step, or of all steps where only some of them collect: one at the end of a long epoch costs next to
nothing, one in every tenth step may cost much. The number of tracked objects is shown but never alarms: every torch
process exceeds the 100,000 of the guide.

Limits
------
`gc.freeze()` is not advised: on CPython 3.11 it was measured to slow a loop with many live containers down to
0.72x, because it empties the long-lived count that holds full collections back. CPython 3.14.0 to 3.14.4 has
no generation 2.

References
----------
- Deeplearning4j, "How to debug performance issues", step 4
- CPython, Lib/test and Modules/gcmodule.c: the 25 % rule of long_lived_pending
- pytorch/torchtitan#148: scheduled collections, 1.5 % an iteration on 512 GPUs
- facebookresearch/dinov3#150: the memory that `gc.disable()` alone costs
"""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import (
    Check,
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Outcome,
    Part,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    share,
)
from perfdoctor.api.quantities import CollectSite, Evidence, GarbageCollection, Job, Missing, Step

from ._shared.wording import in_words_of


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step."""

    min_share: float = 0.05
    """Below, collections are noise; the automatic collector of a healthy loop costs 0 to 1 %."""
    error_share: float = 0.10
    """A judgement: only collections that the loop asks for reach a tenth of the step."""


_NAMED = 0.02
"""Share of the step from which on a cause is named once collections together cost too much: a healthy loop's
automatic collections stay below."""
_AUTOMATIC_RETURNS = 0.15
"""Share of an explicit collection's time that may come back: without it the automatic collector, whose counters
it kept at zero, has work again."""
_THRESHOLDS_KEEP = (0.7, 0.98)
"""What raising the thresholds saves of automatic pauses: fewer full collections, the rest as before. A program of 2.0x
won back 98 % of them."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Explicit collections by line, then what the automatic collector costs."""
    gc, step = evidence.gc, evidence.step
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(gc, Missing):
        return cannot_tell(f"collections were not seen: {gc}")
    shared = _shared_measurements(gc, step)
    rare = limits.min_share * (step.step_ms + step.irregular_ms)
    findings = [
        _explicit(site, evidence.job, gc, step, limits)
        for site in gc.explicit
        if site.is_rare and min(site.ms_per_step, step.irregular_ms) >= rare
    ]
    # Several lines may each cost little and together too much.
    if gc.ms_per_step / step.step_ms >= limits.min_share:
        named = min(_NAMED, limits.min_share) * step.step_ms
        findings += [
            _explicit(site, evidence.job, gc, step, limits)
            for site in gc.explicit
            if not site.is_rare and site.ms_per_step >= named
        ]
        if gc.automatic_ms_per_step >= named:
            findings.append(_automatic(gc, step, evidence.job.world_size, limits))
    if findings:
        return found(*findings, measurements=shared)
    return clear("collections take {gc_ms} per step ({gc_share}), with {full_per_step:full one} per step", *shared)


def _shared_measurements(gc: GarbageCollection, step: Step) -> tuple[Measurement, ...]:
    shared = [
        milliseconds("gc_ms", gc.ms_per_step, "collections per step"),
        share("gc_share", gc.ms_per_step / step.step_ms, "of the step"),
        Measurement("full_per_step", gc.per_step[2], "count", "full collections per step"),
        milliseconds("longest_pause_ms", gc.longest_pause_ms, "longest pause"),
    ]
    if not isinstance(gc.tracked_objects, Missing):
        shared.append(Measurement("tracked_objects", gc.tracked_objects, "count", "objects tracked"))
    return tuple(shared)


def _explicit(site: CollectSite, job: Job, gc: GarbageCollection, step: Step, limits: Limits) -> Finding:
    cost = Cost(step, site.ms_per_step)
    return Finding(
        id="PD04.explicit-collect",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="`gc.collect()` in the loop takes {cost_ms} per step ({cost_share})"
        + (", all of it in one step of {every}" if site.is_rare else ""),
        reasoning="each call walks every object that Python tracks for {pause_ms} and frees {freed_objects} of them; "
        "tensors do not need it, they are freed by reference counting",
        evidence=(
            *cost.measured(
                "this line's collections per step", "on top of the steady step" if site.is_rare else "of the step"
            ),
            Measurement("every", round(1 / max(site.calls_per_step, 1e-9)), "count", "steps from one to the next"),
            Measurement("calls_per_step", site.calls_per_step, "count", "calls per step"),
            milliseconds("pause_ms", site.pause_ms, "one collection"),
            Measurement("freed_objects", gc.full_collected, "count", "objects freed by one collection, mean"),
            *_shared_measurements(gc, step)[4:],
        ),
        location=location(site.site),
        fix=Fix(
            text="Take the call out, or have it walk less: what is there before the loop need not be looked at again.",
            code="gc.freeze()  # once, before the loop: modules, the model, the data set",
            risk="Memory held by reference cycles stays until the next collection.",
            remedies=("gc.no-explicit",),
        )
        if site.is_rare
        else Fix(
            text="Take the call out of the loop; if the job makes reference cycles that hold tensors, collect once per "
            "epoch instead.",
            code=in_words_of(
                job,
                "for epoch in range(epochs):\n    train_one_epoch()\n    gc.collect()  # here, not in the step",
                lightning="def on_train_epoch_end(self, *args):\n    gc.collect()  # here, not in a hook of the step",
                transformers="class Collect(TrainerCallback):\n    def on_epoch_end(self, *args, **others):\n"
                "        gc.collect()  # here, not in a hook of the step",
            ),
            risk="Memory held by reference cycles stays until the next collection.",
            remedies=("gc.no-explicit",),
        ),
        savings=cost.savings(
            (1 - _AUTOMATIC_RETURNS, 1.0),
            "the measured pauses, less up to 15 % that the automatic collector may take over",
            Part.EPOCH if site.is_rare else Part.GC,
        ),
    )


def _automatic(gc: GarbageCollection, step: Step, ranks: int, limits: Limits) -> Finding:
    cost = Cost(step, gc.automatic_ms_per_step)
    return Finding(
        id="PD04.automatic-collections",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message="automatic garbage collections take {cost_ms} per step ({cost_share})",
        reasoning="the loop makes so many containers (lists, dicts, objects) that Python looks for cycles among them "
        "{young_per_step:time} per step, {full_per_step:time} through the whole heap",
        evidence=(
            *cost.measured("automatic collections per step"),
            Measurement("young_per_step", gc.per_step[0], "count", "young collections per step"),
            Measurement("full_per_step", gc.per_step[2], "count", "full collections per step"),
            milliseconds("longest_pause_ms", gc.longest_pause_ms, "longest pause"),
        ),
        fix=Fix(
            text="Let the collector run less often. Every rank waits for the one that collects, so collect on all of "
            "them at the same step:"
            if ranks > 1
            else "Let the collector run less often.",
            code="gc.disable()\nif step % 100 == 0:\n    gc.collect(1)  # the same step on every rank"
            if ranks > 1
            else "import gc\n\ngc.set_threshold(50_000, 50, 100)  # before the loop",
            risk="Reference cycles, and the memory they hold, live longer.",
            remedies=("gc.thresholds", "gc.freeze", "gc.every=50"),
        ),
        savings=cost.savings(_THRESHOLDS_KEEP, "the measured pauses; thresholds of 50,000 skip most of them", Part.GC),
    )


CHECK = Check(code="PD04", name="gc", title="garbage collection", limits=Limits(), examine=examine)
