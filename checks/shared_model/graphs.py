"""Gradients on in the threads: `no_grad` around their start does not reach them."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, location, savings, severity, share

from .._shared.graph import GRAPH_SAVES
from .concurrent_forwards import Forwards
from .limits import Limits


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
