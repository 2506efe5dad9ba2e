"""Gradients that nobody uses: evaluation that records a graph, and a model that no optimizer updates."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Cost,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    share,
)
from perfdoctor.api.quantities import Evidence, HostMemory, Missing, Step

from .._shared.graph import FREEZE_HELD, GRAPH_SAVES
from .limits import Limits

BACKWARD_SAVES = (0.8, 1.0)
"""Of the measured backward pass through a model whose gradients are never used: all of it, as far as it was told
apart."""


def without_graph(forward_ms: float, backward_ms: float) -> tuple[float, float]:
    """What recording no graph saves of those, at least and at most."""
    low, high = (
        graph * forward_ms + kept * backward_ms for graph, kept in zip(GRAPH_SAVES, BACKWARD_SAVES, strict=True)
    )
    return low, high


def grad_in_evaluation(evidence: Evidence, memory: HostMemory, step: Step, limits: Limits) -> Finding | None:
    """None where PD06 bills those graphs: `no_grad` did not reach the threads that make them."""
    threads, evaluation = evidence.concurrency, memory.eval_with_grad
    in_threads = not isinstance(threads, Missing) and threads.graph_nobody_uses and step.boundary != "optimizer"
    if evaluation is None or in_threads:
        return None
    # Validation lies outside the steady step; a frozen teacher, or validation in every other step, does not.
    part = Part.EPOCH if step.irregular_ms >= 0.5 * evaluation.forward_ms else Part.COMPUTE
    backward = _backward_for_nothing(evidence, step) if part is Part.COMPUTE else 0.0
    low, high = without_graph(evaluation.forward_ms, backward)
    if high / step.step_ms < limits.min_share:
        return None
    in_training = part is Part.COMPUTE and step.parts.backward > 0
    walked = "; a later one runs through it as well, for {backward_ms} per step"
    may_be_walked = "; if a later one runs through it, it costs more than this"
    return Finding(
        id="PD08.grad-in-evaluation",
        severity=Cost(step, high).severity(limits.min_share, 2.0),
        confidence=Confidence.MEDIUM,
        message="{forwards:forward pass} with gradients in evaluation: {forward_ms} per step",
        reasoning="the model was in `eval()` mode with gradients on, and no backward pass came before the next "
        "forward pass" + (walked if backward else may_be_walked if in_training else ""),
        evidence=(
            Measurement("forwards", evaluation.forwards, "count", "such forward passes"),
            milliseconds("forward_ms", evaluation.forward_ms, "in such forward passes per step"),
            milliseconds("backward_ms", backward, "of the backward pass in models in evaluation mode"),
        ),
        location=location(evaluation.site),
        fix=Fix(
            text="Call it without gradients; that also frees the memory of the activations.",
            code="with torch.no_grad():\n    output = model(batch)  # the one in evaluation mode",
            risk="None, unless its own parameters are to learn from this loss.",
        )
        if in_training
        else Fix(
            text="Evaluate in inference mode; it also frees the memory of the activations.",
            code="with torch.inference_mode():\n    output = model(batch)",
            risk="Tensors made there cannot take part in a backward pass; use `torch.no_grad()` if they must.",
        ),
        savings=savings(
            step,
            low,
            high,
            "recording a graph takes 5 to 27 % of a forward pass, the smaller the kernels, the more"
            + ("; and the measured backward pass through it" if backward else ""),
            part=part,
        ),
    )


def _backward_for_nothing(evidence: Evidence, step: Step) -> float:
    """Milliseconds in which the backward pass makes gradients of a model that stands aside, such as a teacher."""
    layers = evidence.layers
    if isinstance(layers, Missing) or step.boundary != "optimizer":
        return 0.0
    return min(layers.aside_backward_ms, step.parts.backward)


def unused_gradients(evidence: Evidence, step: Step, limits: Limits) -> Finding | None:
    """A model in training mode, through which the backward pass runs all the same: by its part of that."""
    layers = evidence.layers
    if isinstance(layers, Missing) or step.boundary != "optimizer":
        return None
    backward = Cost(step, min(sum(layer.backward_ms for layer in layers.idle), step.parts.backward))
    forward = min(sum(layer.forward_ms for layer in layers.idle), step.parts.forward)
    low, high = without_graph(forward, backward.ms)
    if backward.ms <= 0 or high / step.step_ms < limits.min_share:
        return None
    model = min(layers.idle, key=lambda layer: layer.order)
    return Finding(
        id="PD08.unused-gradients",
        severity=Cost(step, high).severity(limits.min_share, limits.error_share),
        confidence=Confidence.MEDIUM,
        message="the backward pass spends {backward_ms} per step ({backward_share}) in a model "
        + ("that learns at a rate of 0" if model.held else "without an optimizer"),
        reasoning="{model}'s parameters require gradients and get them, its input requires none, and "
        + ("its optimizer has them at a learning rate of 0" if model.held else "none of them is in any optimizer"),
        evidence=(
            milliseconds("backward_ms", backward.ms, "of the backward pass in it"),
            share("backward_share", backward.share, "of the step"),
            milliseconds("forward_ms", forward, "its forward pass"),
            Measurement("model", model.kind, "text", "the model"),
        ),
        location=location((evidence.job.option("rate") if model.held else None) or model.called_at),
        fix=Fix(
            text="Freeze it, before the loop.",
            code=FREEZE_HELD,
            risk="A schedule that is to raise this learning rate has to thaw it first.",
        )
        if model.held
        else Fix(
            text="Call it without gradients; that also frees the memory of its activations.",
            code="with torch.no_grad():\n    targets = teacher(batch)",
            risk="None, unless its parameters are updated by hand or by an optimizer that is made later.",
        ),
        savings=savings(
            step,
            low,
            high,
            "its part of the backward pass, as measured by layer, and the 5 to 27 % of its forward pass that recording "
            "a graph takes",
        ),
    )
