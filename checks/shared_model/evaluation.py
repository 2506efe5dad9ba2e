"""Evaluation from several threads with gradients on, or in training mode."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, savings, severity, share

from .._shared.graph import GRAPH_SAVES
from .case import Forwards, Limits


def grad_in_threads(case: Forwards, limits: Limits) -> Finding | None:
    """By the forward passes that record an autograd graph which is never used."""
    seen = case.seen
    if not seen.graph_nobody_uses or not case.serving:
        return None
    low, high = (part * seen.eval_with_grad_share * case.step.parts.forward for part in GRAPH_SAVES)
    if high / case.step.step_ms < limits.min_share / 2:
        return None
    return Finding(
        id="PD06.grad-in-threads",
        # A range from other machines is no reason for an error.
        severity=severity(high / case.step.step_ms, limits.min_share, 2.0),
        confidence=Confidence.MEDIUM,
        message="{eval_with_grad} of the forward passes in {threads} threads record a graph that is never used",
        reasoning="the model is in `eval()` mode, gradients are on in those threads, and no thread runs a backward "
        "pass; `no_grad` and `inference_mode` hold only for the thread that enters them",
        evidence=(share("eval_with_grad", seen.eval_with_grad_share, "of forward time with a graph"), *case.shared()),
        location=location(seen.site),
        fix=Fix(
            text="Enter inference mode in the function that the threads run, not around their start.",
            code="def answer(request):\n    with torch.inference_mode():\n        return model(request)",
            risk="Tensors made there cannot take part in a backward pass; use `torch.no_grad()` if they must.",
        ),
        savings=savings(
            case.step, low, high, "recording a graph takes 5 to 27 % of a forward pass, most with small kernels"
        ),
    )


def train_mode_shared(case: Forwards, limits: Limits) -> Finding | None:
    """A matter of right answers: it costs no time that is measured."""
    seen = case.seen
    overlapped = seen.overlapped_share * seen.forwards
    if not seen.shared or seen.backwards or not case.overlap(limits.overlapped) or 2 * seen.in_training < overlapped:
        return None
    return Finding(
        id="PD06.train-mode-shared",
        severity=Severity.NOTE,
        confidence=Confidence.MEDIUM,
        message="{in_training:overlapping forward pass|overlapping forward passes} ran one module in training mode, "
        "and no thread trains it",
        reasoning="dropout then changes the answers, and batch norm updates its statistics from several threads, one "
        "over the other",
        evidence=(
            Measurement("in_training", seen.in_training, "count", "overlapping forward passes in training mode"),
            *case.shared(),
        ),
        location=location(seen.site),
        fix=Fix(text="Switch to evaluation mode before the threads start.", code="model.eval()"),
        savings=savings(case.step, 0.0, 0.0, "a matter of right answers; the time was not measured"),
    )
