"""Evaluations: in small batches, with metrics sample by sample, too often."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    Severity,
    location,
    milliseconds,
    savings,
    severity,
    share,
)
from perfdoctor.api.quantities import CodeLine, Decoding, Evaluations, Evidence, Missing, Site, Step

from .._shared.lines import told_trainer
from .limits import Limits

_HOW_OFTEN = ("eval_steps", "eval_strategy", "val_check_interval", "check_val_every_n_epoch")
"""Options of trainers."""
_TOGETHER = (0.5, 0.95)
"""Of what is done sample by sample: what has to be done on the CPU (texts to compare, boxes to match) stays a loop, if
a shorter one."""


def trained_on(evidence: Evidence, step: Step) -> float:
    """Samples of a step, without a loader at least those of a call of the model; 0 where that is not known."""
    if not isinstance(step.samples, Missing):
        return step.samples
    ops, layers = evidence.ops, evidence.layers
    if not isinstance(ops, Missing) and not isinstance(ops.batch_replay, Missing):
        return ops.batch_replay.batch
    shaped = [] if isinstance(layers, Missing) else [layer for layer in layers.layers if len(layer.input_shape) > 1]
    return min(shaped, key=lambda layer: layer.order).input_shape[0] if shaped else 0.0


def small_batches(evidence: Evidence, step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """Where a sample takes longer in evaluation than in a training step, which does more with it."""
    known = trained_on(evidence, step)
    if not known or not seen.samples or seen.batches <= 0:
        return None
    training_samples = seen.training_samples or round(known)
    if seen.samples * limits.batch_factor > training_samples:
        return None
    each_ms, training_ms = seen.forward_ms / (seen.batches * seen.samples), step.parts.forward / known
    if each_ms < limits.slower_factor * training_ms:
        return None
    saved_ms = (each_ms - training_ms) * seen.batches * seen.samples
    # Beside the forward pass, what is done once a batch: metrics, reads, handing it over.
    per_batch_ms = max(0.0, seen.ms - seen.forward_ms - seen.start_ms) * (1 - seen.samples / training_samples)
    low, high = saved_ms / seen.every_steps, (saved_ms + per_batch_ms) / seen.every_steps
    whole = whole_ms(step, seen)
    return Finding(
        id="PD20.small-evaluation-batches",
        severity=severity(low / whole, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="a forward pass takes {each_ms} per sample in evaluation, in batches of {samples:sample}, and "
        "{training_each_ms} in training",
        reasoning="an evaluation has {batches:batch} and takes {evaluation_ms}, every {every:step}; the forward pass "
        "of a training step does more for a sample in less time",
        evidence=(
            Measurement("samples", seen.samples, "count", "samples in a batch of evaluation"),
            Measurement("training_samples", training_samples, "count", "samples in a batch of training"),
            milliseconds("each_ms", each_ms, "forward pass of a sample, evaluation"),
            milliseconds("training_each_ms", training_ms, "forward pass of a sample, training"),
            Measurement("batches", round(seen.batches), "count", "batches of an evaluation"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            Measurement("every", round(seen.every_steps), "count", "steps from one to the next"),
        ),
        location=location(told_trainer(evidence.job, seen.batch_at, "per_device_eval_batch_size")),
        fix=Fix(
            text="Evaluate in batches at least as large as training's: without gradients they need less memory.",
            code=f"val_loader = DataLoader(..., batch_size={training_samples})",
            risk="A metric that is a mean over batches weighs the last, smaller one differently.",
        ),
        savings=savings(
            step,
            low,
            high,
            "at least the forward pass at training's time per sample, at most also what is done once a batch",
            part=part_of(seen),
        ),
    )


def sample_by_sample(step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """What is done with the outputs, in lines that run once for each of them."""
    lines = seen.by_sample
    if isinstance(lines, Missing) or not lines or seen.samples < limits.least_samples or seen.every_steps <= 0:
        return None
    lines_ms = min(1.0, sum(line.share for line in lines)) * seen.around_ms
    per_step_ms, whole = lines_ms / seen.every_steps, whole_ms(step, seen)
    if per_step_ms < limits.min_share * whole:
        return None
    low, high = (fraction * per_step_ms for fraction in _TOGETHER)
    return Finding(
        id="PD20.metrics-sample-by-sample",
        severity=severity(low / whole, limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="evaluation spends {lines_ms} of {evaluation_ms} in lines that run once for each sample: "
        "{each_us} per sample",
        reasoning="a batch of {samples:sample} was followed from its forward pass to the next; what lies between takes "
        "{around_ms}, the forward passes {forward_ms}",
        evidence=(
            milliseconds("lines_ms", lines_ms, "in lines that run for each sample, in an evaluation"),
            milliseconds("around_ms", seen.around_ms, "between forward passes, in an evaluation"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            milliseconds("forward_ms", seen.forward_ms, "its forward passes"),
            Measurement("each_us", 1000 * lines_ms / (seen.batches * seen.samples), "us", "in these lines, per sample"),
            Measurement("samples", seen.samples, "count", "samples in a batch"),
            Measurement("every", round(seen.every_steps), "count", "steps from one evaluation to the next"),
        ),
        location=location(_first_of_the_largest(lines)),
        fix=Fix(
            text="Compute metrics on whole tensors, or collect outputs and compute them once at the end.",
            code="right += (model(x).argmax(1) == y).sum()  # one read after the loop: right.item()",
            risk="Outputs that are collected take memory.",
        ),
        savings=savings(
            step,
            low,
            high,
            "half to nearly all of the time in these lines",
            part=part_of(seen),
        ),
    )


def _first_of_the_largest(lines: tuple[CodeLine, ...]) -> Site:
    """Of the function that the most of the time is in, where its loop begins."""
    spent: dict[tuple[str, str], float] = {}
    for line in lines:
        where = (line.site.file, line.site.function)
        spent[where] = spent.get(where, 0.0) + line.share
    most = max(spent, key=lambda where: spent[where])
    return next(line.site for line in lines if (line.site.file, line.site.function) == most)


_HALF_AS_OFTEN = 0.5
"""Of evaluations, spared at least: how rarely is the user's choice, and of six programs whose authors chose, five chose
more than a twentieth of the time."""


def too_often(evidence: Evidence, step: Step, seen: Evaluations, limits: Limits) -> Finding | None:
    """How often is a choice, and an opportunity; where it takes longer than training, hardly one that was meant."""
    least = limits.min_held_out_share if seen.held_out and seen.regular else limits.min_evaluation_share
    if seen.count < 2 or seen.share < least or seen.every_steps < 1:
        return None
    whole = whole_ms(step, seen)
    per_step_ms = seen.ms / seen.every_steps
    target = limits.target_share
    trains_ms = max(0.0, step.step_ms - per_step_ms) if seen.regular else step.step_ms
    training_ms = seen.every_steps * trains_ms if seen.regular else seen.training_ms
    wanted_ms = trains_ms * target / (1 - target)
    every = round(seen.ms / wanted_ms) if wanted_ms > 0 else 0
    saved_ms = per_step_ms - wanted_ms
    if saved_ms <= 0 or every <= seen.every_steps:
        return None
    dominates = seen.ms > training_ms > 0 and seen.is_sure
    often = "in every step, which trains" if seen.every_steps < 1.5 else "every {every:step}, which train"
    return Finding(
        id="PD20.evaluation-too-often",
        severity=severity(saved_ms / whole, limits.min_share, limits.error_share) if dominates else Severity.NOTE,
        confidence=Confidence.HIGH if dominates else Confidence.MEDIUM,
        message="evaluation takes {evaluation_share} of the loop's time: {evaluation_ms} "
        + often
        + " for {training_ms}",
        reasoning=_how_it_is_known(seen),
        evidence=(
            share("evaluation_share", seen.share, "of the loop's time, evaluating"),
            milliseconds("evaluation_ms", seen.ms, "an evaluation"),
            milliseconds("training_ms", training_ms, "training from one to the next"),
            Measurement("evaluations", seen.count, "count", "seen between steps"),
            Measurement("every", round(seen.every_steps), "count", "steps from one to the next"),
            Measurement("wanted_every", every, "count", "steps, for a twentieth of the time"),
        ),
        location=location(told_trainer(evidence.job, seen.asked_at, *_HOW_OFTEN)),
        fix=Fix(
            text="Evaluate every {wanted_every:step}, which is a twentieth of the time, or on a part of the set.",
            code=f"if step % {every} == 0:\n    evaluate()",
            risk="The best checkpoint is found later, and early stopping stops later."
            + (
                " If training needs the numbers (a schedule, a line search), it needs them less often then."
                * seen.held_out
            ),
        ),
        savings=savings(
            step,
            min(_HALF_AS_OFTEN * per_step_ms, saved_ms),
            saved_ms,
            "what evaluations were timed to take, from half as often to a twentieth of the time",
            part=part_of(seen),
            general=True,
        ),
    )


def _how_it_is_known(seen: Evaluations) -> str:
    if not seen.held_out:
        return (
            "{evaluations:evaluation} between steps were timed, with their waits and what lies between their forward "
            "passes"
        )
    called = "this line calls the model that the job trains, without gradients, on a tensor that it was given before"
    if seen.is_sure:
        return called + "; no backward pass goes through what is computed from its output, which is timed with it"
    return called + "; whether training needs what is computed from the output could not be told"


def part_of(seen: Evaluations | Decoding) -> Part:
    """Where its time is billed: beside the steady step, unless that holds it."""
    return Part.COMPUTE if seen.regular else Part.EPOCH


def whole_ms(step: Step, seen: Evaluations | Decoding) -> float:
    """Of a step, with its part of what lies between steps where that holds it."""
    return step.step_ms if seen.regular else step.step_ms + step.irregular_ms
