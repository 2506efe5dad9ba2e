"""From where on what happens around an update is worth a finding."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds, as shares of the steady step unless they say otherwise."""

    update_share: float = 0.1
    """What another way to update would save, as an opportunity: the loop is what torch does on a CPU unless told
    otherwise."""
    groups_share: float = 0.05
    """What fewer groups of parameters would save: a line or two where the optimizer is made."""
    state_share: float = 0.10
    """Of the model's state, copied: an average in place takes some thought; less is not worth it."""
    loop_share: float = 0.05
    """Of loops over parameters that make one operator for all: a line or two to write anew."""
    zeroed_share: float = 0.05
    """What gradients that are let go would save: one argument to take out."""
    gradients_share: float = 0.05
    """Of gradients that no optimizer uses: a line to write after the model is made."""
    derivatives_share: float = 0.05
    """Of derivatives that one call could ask for together."""
    passes_share: float = 0.05
    """Of backward passes through a graph again: losses to add up first."""
    schedule_share: float = 0.05
    """Of schedules that are stepped more often than the optimizer, and of statistics that are made more often than they
    are used: one line to move."""
    factorized_share: float = 0.05
    """Of matrices that each update factorizes: an option, or a condition to write."""
    error_share: float = 0.30
    """A judgement: a third of the step spent around the update."""
