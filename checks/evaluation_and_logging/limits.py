"""Thresholds of what is found about evaluation and logging."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares."""

    min_share: float = 0.05
    """Of the step, for logging: one line to move, so little is worth it."""
    trainer_share: float = 0.20
    """Of the step, for what a trainer is told to log, from where on it is an ill: that is how its users log."""
    error_share: float = 0.30
    """A judgement: a third of the time spent on other things than training."""
    min_evaluation_share: float = 0.25
    """Of the loop's time: a validation set a quarter as large as the training set, once an epoch, takes a tenth."""
    min_held_out_share: float = 0.10
    """The same of evaluations without a loader that are part of the steady step: hardly a curve needs a point per
    step, and one line makes them rarer."""
    min_python_share: float = 0.10
    """Of the step, for metrics of training in Python: what little code takes is hardly told from watching it."""
    target_share: float = 0.05
    """What evaluating less often is predicted for."""
    batch_factor: float = 2.0
    """So many times smaller than training's are small batches."""
    least_samples: int = 8
    """In a batch: of fewer, a loop over them is no longer told from one over metrics or outputs."""
    slower_factor: float = 1.5
    """A sample's forward pass takes so much longer in evaluation than in training, where it also keeps a graph."""
