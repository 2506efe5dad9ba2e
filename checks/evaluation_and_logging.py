"""Evaluation and logging: what a loop does beside training, and how often.

What it looks at
----------------
Prints, log records, progress bars (tqdm) and trackers (TensorBoard, W&B, MLflow) in the training loop, each call timed
by the line that makes it. Evaluations between two steps of training: how often, how long, in which batches, and how
much of the loop's time they take.

Why it costs time
-----------------
A print writes and flushes, a progress bar formats and redraws, a histogram copies a tensor and sorts it, and the loop
waits for each. Done in every step, that is a part of every step. An evaluation costs what it costs each time: every few
steps, or in batches much smaller than training's, it can take longer than training.

Example
-------
    for x, y in loader:
        ...
        for name, p in model.named_parameters():
            writer.add_histogram(name, p, step)      # every step
        if step % 10 == 0:
            evaluate(model, DataLoader(val, batch_size=1))

How to fix
----------
Log every 50th step or so, and let progress bars redraw rarely (`tqdm(..., mininterval=5)`). Evaluate in batches at
least as large as training's; less often where evaluating takes a large part of the time.

When it stays silent
--------------------
Below 5 % of the step for logging, and below a quarter of the loop's time for evaluation: how often to evaluate is the
user's choice. So it is an opportunity, unless evaluating takes longer than training. Workers that start again for each
evaluation are PD03's, forward passes with gradients PD08's.

Limits
------
In a job that uses torch.compile, logging is not timed. A library that is not known here is not seen. What a tracker
does on a thread of its own is not counted. Evaluation is known by its loader: one on tensors in memory is told
apart from an agent that acts by nothing, and is left out.

References
----------
- PyTorch, "Performance tuning guide": avoid unnecessary CPU-GPU synchronization
- tqdm's documentation: `mininterval`
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
    Severity,
    cannot_tell,
    clear,
    found,
    location,
    milliseconds,
    present,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import Evaluations, Evidence, Missing, Step


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares."""

    min_share: float = 0.05
    """Of the step, for logging: one line to move, so little is worth it."""
    error_share: float = 0.30
    """A judgement: a third of the time spent on other things than training."""
    min_evaluation_share: float = 0.25
    """Of the loop's time: a validation set a quarter as large as the training set, once an epoch, takes a tenth."""
    target_share: float = 0.05
    """What evaluating less often is predicted for."""
    batch_factor: float = 2.0
    """So many times smaller than training's are small batches."""
    slower_factor: float = 1.5
    """A sample's forward pass takes so much longer in evaluation than in training, where it also keeps a graph."""


_LOGGED = (0.8, 0.98)
"""Of its cost: every fifth step to every fiftieth."""


def examine(evidence: Evidence, limits: Limits) -> Outcome:
    """Logging, and evaluations where there are some."""
    step, evaluations = evidence.step, evidence.evaluations
    if isinstance(step, Missing):
        return cannot_tell(f"there is no steady step: {step}")
    if isinstance(evidence.logging, Missing) and isinstance(evaluations, Missing):
        return cannot_tell(f"logging was not watched: {evidence.logging}")
    findings = [logging(evidence, step, limits)]
    numbers = [share("logging_share", step.parts.logging / step.step_ms, "of the step, printing and logging")]
    if not isinstance(evaluations, Missing):
        findings += [small_batches(step, evaluations, limits), too_often(step, evaluations, limits)]
        numbers.append(share("evaluation_share", evaluations.share, "of the loop, evaluating"))
    some = present(*findings)
    if some:
        return found(*some, measurements=tuple(numbers))
    if isinstance(evaluations, Missing):
        return clear("logging takes {logging_share} of the step; the job was not seen to evaluate", *numbers)
    return clear("logging takes {logging_share} of the step, evaluation {evaluation_share} of the loop", *numbers)


def logging(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """The dearest line speaks for all: what helps one helps the others."""
    cost = Cost(step, step.parts.logging)
    lines = () if isinstance(evidence.logging, Missing) else evidence.logging
    if cost.share < limits.min_share or not lines:
        return None
    dearest, total = lines[0], sum(line.ms_per_step for line in lines)
    others = "" if dearest.ms_per_step > 0.9 * total else ", most of it in {logger}"
    return Finding(
        id="PD20.logging",
        severity=cost.severity(limits.min_share, limits.error_share),
        confidence=Confidence.HIGH,
        message=("{logger}" if not others else "logging") + f" in the training loop takes {{cost_ms}} per step{others}",
        reasoning="each call was timed in the job itself: this line calls {logger} {calls:time} per step, "
        "{line_ms}, and the loop waits for it",
        evidence=(
            *cost.measured(),
            Measurement("logger", dearest.name, "text", "called"),
            Measurement("calls", dearest.calls_per_step, "count", "calls of the line per step"),
            milliseconds("line_ms", dearest.ms_per_step, "in that line, per step"),
        ),
        location=location(dearest.site),
        fix=Fix(
            text="Log every 50th step or so; a progress bar redraws rarely with `mininterval=5`.",
            code="if step % 50 == 0:\n    ...  # what logs",
            risk="Curves have fewer points.",
        ),
        savings=cost.savings(_LOGGED, "the calls' own time, at every fifth step to every fiftieth", Part.OTHER),
    )


def small_batches(step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """Where a sample takes longer in evaluation than in a training step, which does more with it."""
    if isinstance(step.samples, Missing) or not seen.samples or step.samples <= 0 or seen.batches <= 0:
        return None
    if seen.samples * limits.batch_factor > seen.training_samples:
        return None
    each_ms, training_ms = seen.forward_ms / (seen.batches * seen.samples), step.parts.forward / step.samples
    if each_ms < limits.slower_factor * training_ms:
        return None
    saved_ms = (each_ms - training_ms) * seen.batches * seen.samples
    # Beside the forward pass, what is done once a batch: metrics, reads, handing it over.
    per_batch_ms = max(0.0, seen.ms - seen.forward_ms - seen.start_ms) * (1 - seen.samples / seen.training_samples)
    low, high = saved_ms / seen.every_steps, (saved_ms + per_batch_ms) / seen.every_steps
    whole_ms = step.step_ms + step.irregular_ms
    return Finding(
        id="PD20.small-evaluation-batches",
        severity=severity(low / whole_ms, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="a forward pass takes {each_ms} per sample in evaluation, in batches of {samples:sample}, and "
        "{training_each_ms} in training",
        reasoning="an evaluation has {batches:batch} and takes {evaluation_ms}, every {every:step}; the forward pass "
        "of a training step does more for a sample in less time",
        evidence=(
            Measurement("samples", seen.samples, "count", "samples in a batch of evaluation"),
            Measurement("training_samples", seen.training_samples, "count", "samples in a batch of training"),
            milliseconds("each_ms", each_ms, "forward pass of a sample, evaluation"),
            milliseconds("training_each_ms", training_ms, "forward pass of a sample, training"),
            Measurement("batches", round(seen.batches), "count", "batches of an evaluation"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            Measurement("every", round(seen.every_steps), "count", "steps from one to the next"),
        ),
        location=location(seen.loader_site),
        fix=Fix(
            text="Evaluate in batches at least as large as training's: without gradients they need less memory.",
            code=f"val_loader = DataLoader(..., batch_size={seen.training_samples})",
            risk="A metric that is a mean over batches weighs the last, smaller one differently.",
        ),
        savings=savings(
            step,
            low,
            high,
            "at least the forward pass at training's time per sample, at most also what is done once a batch",
            part=Part.EPOCH,
        ),
    )


def too_often(step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """How often is a choice, and an opportunity; where it takes longer than training, hardly one that was meant."""
    if seen.count < 2 or seen.share < limits.min_evaluation_share or seen.every_steps < 1:
        return None
    whole_ms = step.step_ms + step.irregular_ms
    per_step_ms = seen.ms / seen.every_steps
    target = limits.target_share
    wanted_ms = step.step_ms * target / (1 - target)
    every = round(seen.ms / wanted_ms) if wanted_ms > 0 else 0
    saved_ms = per_step_ms - wanted_ms
    if saved_ms <= 0 or every <= seen.every_steps:
        return None
    dominates = seen.ms > seen.training_ms > 0
    return Finding(
        id="PD20.evaluation-too-often",
        severity=severity(saved_ms / whole_ms, limits.min_share, limits.error_share) if dominates else Severity.NOTE,
        confidence=Confidence.HIGH if dominates else Confidence.MEDIUM,
        message="evaluation takes {evaluation_share} of the loop's time: {evaluation_ms} every {every:step}, which "
        "train for {training_ms}",
        reasoning="{evaluations:evaluation} between steps were timed, with their waits and what lies between their "
        "forward passes",
        evidence=(
            share("evaluation_share", seen.share, "of the loop's time, evaluating"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            milliseconds("training_ms", seen.training_ms, "training from one to the next"),
            Measurement("evaluations", seen.count, "count", "seen between steps"),
            Measurement("every", round(seen.every_steps), "count", "steps from one to the next"),
            Measurement("wanted_every", every, "count", "steps, for a twentieth of the time"),
        ),
        location=location(seen.iterated_at),
        fix=Fix(
            text="Evaluate every {wanted_every:step}, which is a twentieth of the time, or on a part of the set.",
            code=f"if step % {every} == 0:\n    evaluate()",
            risk="The best checkpoint is found later, and early stopping stops later.",
        ),
        savings=savings(
            step,
            0.9 * saved_ms,
            saved_ms,
            "what evaluations were timed to take, less a twentieth of the time",
            part=Part.EPOCH,
            general=True,
        ),
    )


CHECK = Check(
    code="PD20",
    name="evaluation-and-logging",
    title="evaluation and logging in the loop",
    limits=Limits(),
    examine=examine,
)
