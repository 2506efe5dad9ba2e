"""Dropout and batch norm of one module, in training mode, from several threads that do not train."""

from __future__ import annotations

from perfdoctor.api.findings import Confidence, Finding, Fix, Measurement, Severity, location, savings

from .concurrent_forwards import Forwards
from .limits import Limits


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
