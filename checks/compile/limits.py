"""Thresholds of what is found about torch.compile, and savings that nobody knows."""

from __future__ import annotations

from dataclasses import dataclass

from perfdoctor.api.findings import Savings, savings
from perfdoctor.api.quantities import Step


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds."""

    min_share: float = 0.05
    """Of the time of the later half of the steps, spent compiling again: an argument of torch.compile avoids it."""
    error_share: float = 0.30
    """A judgement: a third of the time."""
    least: int = 3
    """Compilations in the later half, or of one function after the warm-up: one or two may be its last new sizes."""
    breaks: int = 2
    """Lines that break graphs: one, at the loss or a print, is common."""
    slower: float = 1.05
    """Times a step in Python: so much longer is a compiled one, whose Python steps came first and warmed up besides."""
    required: float = 1.5
    """Times a compiled step, which a step in Python would have to take for compiling to pay: Inductor gives less on
    most models."""


def unknown(step: Step, why: str) -> Savings:
    """Anything of the passes, or nothing."""
    return savings(step, 0.0, 0.0, f"not known: {why}", ceiling=step.parts.compute, general=True)
