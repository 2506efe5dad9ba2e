"""Settings that are one of a few words: a module of its own, so that the command line can offer them at once."""

from typing import Literal

FailOn = Literal["error", "warning", "never"]
"""The severity from which on a finding makes the exit code 1."""
Schedule = Literal["interleaved", "abba"]
"""Of a gate: the arms take turns, slice by slice, or one launch runs at a time."""
OnInconclusive = Literal["fail", "warn"]
Tracker = Literal["mlflow", "wandb"]
"""Experiment trackers to whose runs a note can be written."""
