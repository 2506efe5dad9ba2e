"""What threads do not inherit: gradients are on in each of them anew, and they share the model's training mode."""

from __future__ import annotations

from typing import Protocol

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Part, location, savings, severity, share

from .._shared.graph import GRAPH_SAVES
from .._shared.limits import CostLimits
from .concurrent_forwards import Forwards


class Limits(CostLimits, Protocol):
    """The check's thresholds that matter here."""

    @property
    def overlapped(self) -> float: ...


def graphs(case: Forwards, limits: Limits) -> list[Finding]:
    """Gradients on in the threads: `no_grad` around their start does not reach them."""
    seen = case.seen
    if not seen.graph_nobody_uses or not case.serving:
        return []
    low, high = (part * seen.eval_with_grad_share * case.step.parts.forward for part in GRAPH_SAVES)
    if high / case.step.step_ms < limits.min_share / 2:
        return []
    return [
        Finding(
            id="PD06.grad-in-threads",
            # A range from other machines is no reason for an error.
            severity=severity(high / case.step.step_ms, limits.min_share, 2.0),
            confidence=Confidence.MEDIUM,
            message="{eval_with_grad} of the forwards in {threads} threads record a graph that nobody uses",
            reasoning="the model is in `eval()` mode, gradients are on in those threads, and no thread runs a "
            "backward pass; `no_grad` and `inference_mode` hold for the thread that enters them only",
            evidence=(
                share("eval_with_grad", seen.eval_with_grad_share, "of forward time with a graph"),
                *case.shared(),
            ),
            location=location(seen.site),
            fix=Fix(
                text="Enter inference mode in the function that the threads run, not around their start.",
                code="def answer(request):\n    with torch.inference_mode():\n        return model(request)",
                risk="Tensors made there cannot take part in a backward pass; use `torch.no_grad()` if they must.",
            ),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=high,
                low=low,
                high=high,
                method="recording a graph takes 5 to 27 % of a forward pass; the smaller the kernels, the more",
            ),
        )
    ]


def training_mode(case: Forwards, limits: Limits) -> list[Finding]:
    """Dropout and batch norm of one module, in training mode, from several threads that do not train."""
    seen = case.seen
    overlapped = seen.overlapped_share * seen.forwards
    if not seen.shared or seen.backwards or not case.overlap(limits.overlapped) or 2 * seen.in_training < overlapped:
        return []
    return [
        Finding(
            id="PD06.train-mode-shared",
            severity=severity(0.0, limits.min_share, limits.error_share),
            confidence=Confidence.MEDIUM,
            message="{in_training:overlapping forward} ran one module in training mode, and no thread trains it",
            reasoning="dropout then changes the answers, and batch norm updates its statistics from several "
            "threads, one over the other",
            evidence=(
                Measurement("in_training", seen.in_training, "count", "overlapping forwards in training mode"),
                *case.shared(),
            ),
            location=location(seen.site),
            fix=Fix(text="Switch to evaluation mode before the threads start.", code="model.eval()"),
            savings=savings(
                case.step,
                Part.COMPUTE,
                ceiling=0.0,
                low=0.0,
                high=0.0,
                method="a matter of right answers; the time was not measured",
            ),
        )
    ]
