"""Judgements as they come: one JSON line each. A run that breaks loses one program, and a long one can be resumed.

A line names the doctor, the program, a digest of what was run, and the judgement. The last line about a program counts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path

import cattrs

from .case import Program
from .judgement import Judgement


@dataclass(frozen=True)
class Entry:
    """One judgement of one program."""

    doctor: str
    program: str
    """`key` of the program."""
    digest: str
    """Of what was run: a judgement of a program that has changed since says nothing."""
    judgement: Judgement
    made_by: str = ""
    """Which state of the doctor said it."""


@dataclass
class Book:
    """All entries of a file, or of this run alone where there is no file."""

    path: Path | None = None
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    """By doctor and program, in the order in which they came."""

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for entry in read(self.path):
                self.entries[entry.doctor, entry.program] = entry

    def add(self, entry: Entry) -> None:
        """Written before the next program starts."""
        self.entries.pop((entry.doctor, entry.program), None)
        self.entries[entry.doctor, entry.program] = entry
        if self.path is not None:
            # A line that a killed run left unfinished stays a line of its own.
            start = "" if not self.path.exists() or self.path.read_bytes()[-1:] in (b"", b"\n") else "\n"
            with self.path.open("a") as file:
                file.write(start + json.dumps({**asdict(entry), "date": date.today().isoformat()}) + "\n")

    def entry(self, doctor: str, program: Program, seed: int) -> Entry | None:
        """What this doctor said of this very program; None when it was not asked."""
        entry = self.entries.get((doctor, key(program, seed)))
        return entry if entry is not None and entry.digest == digest(program) else None


def key(program: Program, seed: int) -> str:
    """What a judgement is filed under."""
    return f"{program.case.name}/{seed}/{program.severity}/{'sick' if program.sick else 'well'}"


def digest(program: Program) -> str:
    """Changes with all that decides how the program runs."""
    how = [program.source, sorted(program.environment.items()), list(program.case.launcher)]
    text = json.dumps([*how, program.neighbours, program.quota])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read(path: Path) -> Iterator[Entry]:
    """The file's entries; a cut line, of a run that was killed, is left out."""
    for line in path.read_text().splitlines():
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        judgement = cattrs.structure(facts["judgement"], Judgement)
        yield Entry(facts["doctor"], facts["program"], facts["digest"], judgement, facts["made_by"])
