"""Modes of the job's own around its passes: `TorchDispatchMode`, `TorchFunctionMode`, a default device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base import Site


@dataclass(frozen=True, slots=True)
class ModesSeen:
    """Steps that were looked at, some early and some later."""

    step: int
    """The last of them."""
    looked: int
    """How many."""
    on: int
    """Those with a mode of the job's around a forward or backward pass."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A class of modes in the steps of the window that had some on."""

    name: str
    """Of the class, without an underscore in front: `FlopCounterMode`."""
    module: str
    kind: Literal["dispatch", "function", "device"]
    """What it hears of: operators, functions of torch, or those that make tensors, where it is a default device."""
    calls_per_step: float
    """Operators or functions."""
    ms: tuple[float, ...]
    """What its own Python takes in such a step, step by step, without the operators; of a default device its calls by
    what one takes longer, timed in the job's process."""
    site: Site | None
    """The line that enters it; None where none was seen."""


@dataclass(frozen=True, slots=True)
class ModesWindow:
    """A clock around the handlers of modes."""

    steps: int
    on: int
    """Of the steps, those with a mode on."""
    modes: tuple[Mode, ...]
