"""The run directories of one job: of several nodes, each has made one of its own beside the others'."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from ..errors import PerfdoctorError
from .directory import RunDirectory
from .identity import Place, read_places
from .model import RunFacts
from .reader import read_facts

QUIET_S = 10.0
"""Without a new sample of the machine for so long, nobody records any more: the monitor writes two a second."""


@dataclass(frozen=True, slots=True)
class Part:
    """One run directory of a job."""

    directory: RunDirectory
    places: tuple[Place, ...]
    """Of its processes that have one."""
    began_s: float
    """By its machine's clock, seconds since 1970."""
    ended_s: float
    """The same; when it was written to last, where nobody wrote down how the job ended."""
    is_over: bool
    """It says how the job ended there."""

    @property
    def ranks(self) -> frozenset[tuple[int, int]]:
        """Attempts and ranks that ran here."""
        return frozenset((place.attempt, place.rank) for place in self.places)

    @property
    def last_ranks(self) -> frozenset[int]:
        """Of the last attempt that ran here."""
        last = max((attempt for attempt, _ in self.ranks), default=0)
        return frozenset(rank for attempt, rank in self.ranks if attempt == last)

    def shared_s(self, other: Part) -> float:
        """For how long both ran; negative where one was over before the other began."""
        return min(self.ended_s, other.ended_s) - max(self.began_s, other.began_s)

    def is_beside(self, other: Part) -> bool:
        """Whether both are of one job, and no rank of it is in both."""
        return not self.ranks & other.ranks and any(
            mine.identity.is_of(theirs.identity) for mine in self.places for theirs in other.places
        )


def find(directory: RunDirectory) -> tuple[Part, ...]:
    """This directory, then the others of the same job, by name. Raises PerfdoctorError when it is no recording."""
    facts = read_facts(directory)
    found = [_with_places(_timed(directory, facts))]
    if not found[0].places:
        return tuple(found)
    others = [part for path in _others(directory.path) if (part := _read_part(path, found[0])) is not None]
    # A node that came after a restart has met only those that were there by then.
    left = sorted(others, key=lambda part: -part.shared_s(found[0]))
    while joined := next((part for part in left if _joins(part, found)), None):
        found.append(joined)
        left.remove(joined)
    return (found[0], *sorted(found[1:], key=lambda part: part.directory.path))


def lead(parts: Sequence[Part]) -> Part | None:
    """The one with the lowest rank of the last attempt; None where no rank is known."""
    with_ranks = [part for part in parts if part.ranks]
    return min(with_ranks, key=lambda part: min((-attempt, rank) for attempt, rank in part.ranks), default=None)


def unrecorded(parts: Sequence[Part]) -> frozenset[int]:
    """Ranks of the job's last attempt that nobody has recorded; none where it is not known how many there are."""
    places = [place for part in parts for place in part.places]
    last = max((place.attempt for place in places), default=0)
    world = max((place.world for place in places), default=0)
    return frozenset(range(world)) - {place.rank for place in places if place.attempt == last}


def last_written_s(directory: RunDirectory) -> float:
    """When a file of it was last written to, by the clock that its disk goes by; 0 where there is none."""
    try:
        return max((entry.stat().st_mtime for entry in os.scandir(directory.path)), default=0.0)
    except OSError:
        return 0.0


def is_growing(directory: RunDirectory) -> bool:
    """Whether somebody still records there."""
    return time.time() - last_written_s(directory) < QUIET_S


def _joins(part: Part, found: Sequence[Part]) -> bool:
    """Whether it is beside one of these, and takes the place of none."""
    return any(part.is_beside(one) for one in found) and not any(part.ranks & one.ranks for one in found)


def _others(path: Path) -> list[Path]:
    try:
        return [other for other in path.resolve().parent.iterdir() if other.name != path.resolve().name]
    except OSError:
        return []


def _read_part(path: Path, first: Part) -> Part | None:
    """None for what is no recording, or of another time."""
    directory = RunDirectory(path)
    try:
        facts = read_facts(directory)
    except PerfdoctorError:
        return None
    part = _timed(directory, facts)
    return _with_places(part) if part.shared_s(first) > 0 else None


def _timed(directory: RunDirectory, facts: RunFacts) -> Part:
    try:
        began_s = datetime.fromisoformat(facts.started).timestamp()
    except ValueError:
        began_s = 0.0
    ended_s = began_s + facts.elapsed_s if facts.elapsed_s else last_written_s(directory)
    return Part(directory, (), began_s, ended_s, is_over=facts.end != "unknown")


def _with_places(part: Part) -> Part:
    read = read_places(part.directory.process_files())
    # Kubernetes gives each pod a RANK; under torchrun that is its agent's, and its ranks have others.
    numbered = any(place.has_local_rank for place in read)
    return replace(part, places=tuple(dict.fromkeys(place for place in read if place.has_local_rank is numbered)))
