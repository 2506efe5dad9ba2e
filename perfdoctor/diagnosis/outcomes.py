"""How a check ends, and what a check is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from ..evidence.model import Evidence
from .findings import Finding, Measurement

L = TypeVar("L")


class OutcomeKind(str, Enum):
    """The five ways a check can end; `silence never looks like health`."""

    FOUND = "found"
    CLEAR = "clear"
    NOT_APPLICABLE = "not-applicable"
    CANNOT_TELL = "cannot-tell"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended. Build it with `found`, `clear`, `not_applicable` or `cannot_tell`."""

    kind: OutcomeKind
    reason: str = ""
    """One sentence, a template over `measurements`; for `cannot-tell` also how to get the evidence."""
    measurements: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()


def found(*findings: Finding, measurements: tuple[Measurement, ...] = ()) -> Outcome:
    """At least one finding."""
    if not findings:
        raise ValueError("found() needs a finding; say clear() with the numbers that clear it")
    return Outcome(OutcomeKind.FOUND, findings=findings, measurements=measurements)


def present(*findings: Finding | None) -> tuple[Finding, ...]:
    """Those that were made, in order: a question that finds nothing answers None."""
    return tuple(finding for finding in findings if finding is not None)


def clear(reason: str, *measurements: Measurement) -> Outcome:
    """Looked at and fine; `measurements` are the numbers that say so."""
    if not measurements:
        raise ValueError("clear() needs the numbers that clear it")
    return Outcome(OutcomeKind.CLEAR, reason, measurements)


def not_applicable(reason: str) -> Outcome:
    """The question does not arise in this job."""
    return Outcome(OutcomeKind.NOT_APPLICABLE, reason)


def cannot_tell(reason: str) -> Outcome:
    """Evidence is missing; `reason` says which and how to get it."""
    return Outcome(OutcomeKind.CANNOT_TELL, reason)


@dataclass(frozen=True, slots=True)
class Check(Generic[L]):
    """A check as the registry finds it: the module attribute `CHECK`."""

    code: str
    """`PD03`."""
    name: str
    """`etl`."""
    title: str
    """For a report's table, a few words."""
    limits: L
    """A frozen dataclass of thresholds; every field can be set in the configuration by its kebab name."""
    examine: Callable[[Evidence, L], Outcome]
    aliases: tuple[str, ...] = ()
    """Other names by which options, configuration and `explain` know it: `data-loading`."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that it is called."""
        return (self.code, self.name, *self.aliases)
