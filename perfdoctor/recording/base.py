"""A quantity that was not seen, and a place in the user's code: what all records and evidence are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

MissingCode = Literal["", "not-python", "torch-broken", "no-torch", "no-step", "no-worker", "drifts", "trains-on"]
"""Why a job has no step: the probe never started, torch could not be imported, or was not, or nothing trained, or no
worker of an engine reported. Why nothing is extrapolated: its steps get longer or shorter."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A quantity this run did not see."""

    reason: str
    """Why, as a clause: "the job ended before the operator window"."""
    remedy: str = ""
    """How to get it, as an imperative: "run with --steps 50 or more"."""
    code: MissingCode = ""
    """For code that must tell reasons apart; "" where nothing needs to."""

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}" if self.remedy else self.reason


NO_LINE = Missing("no line of the job was on the stack")
"""In the place of a `Site`."""
NOT_TIMED = Missing(
    "the job was gone before its operators could be timed",
    "let perfdoctor stop it (--steps), or let it end without os._exit and signals",
)


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's code, as the job's stack showed it."""

    file: str
    """Relative to the job's working directory where it lies below it."""
    line: int
    function: str
    via: str = field(default="", compare=False)
    """The framework function between the user's line and the event (`lightning/.../fit_loop.py:advance`); none in what
    was recorded of this line before one was seen."""

    def __str__(self) -> str:
        """`train.py:41 in main`."""
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")
