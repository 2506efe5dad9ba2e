"""Forward passes with gradients in evaluation."""

from __future__ import annotations

from perfdoctor.api.findings import (
    Confidence,
    Finding,
    Fix,
    Measurement,
    Part,
    location,
    milliseconds,
    savings,
    severity,
)
from perfdoctor.api.quantities import Evidence, HostMemory, Missing, Step

from .backward import without_graph
from .limits import Limits


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
        severity=severity(high / step.step_ms, limits.min_share, 2.0),
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
