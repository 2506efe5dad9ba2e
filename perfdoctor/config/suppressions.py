"""One accepted finding: what it silences, for how long and why; from the configuration or from a comment.

A comment stands on the finding's line, or alone on the lines directly above it:

    gc.collect()  # perfdoctor: ignore[PD04.explicit-collect] -- the evaluation needs the memory back
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from .decoding import NO_KEY, TABLES, Form, Place, decode, required, setting

if TYPE_CHECKING:
    # Types only: `diagnosis` imports this module, and the command line must start fast.
    from ..diagnosis.findings import Finding

Match = Literal["active", "expired", "no"]

_COMMENT = re.compile(r"#\s*perfdoctor:\s*ignore\b(?P<rest>.*)")
_CODES = re.compile(r"\s*\[(?P<codes>[^\]]*)\](?P<after>.*)")
_NEXT_COMMENT = re.compile(r"\s#\s.*")
"""Another tool's comment behind the reason: `-- slow disk  # noqa: E501`. `#12` is part of a reason."""
_LONGEST_BYTES = 4_000_000
"""Nobody writes longer files by hand, but a recording may name any."""
_HOW = "write `# perfdoctor: ignore[CODE] -- reason`"


def _where(value: object) -> str | None:
    if not isinstance(value, str) or not value.strip() or re.search(r":\d+$|^::|::$", value):
        return None
    return value


WHERE = Form('"train.py" or "train.py::function" (line numbers move)', _where)


@dataclass(frozen=True, slots=True)
class Suppression:
    """A finding that its owner accepts."""

    code: str = required("Name what it silences: a check (PD04) or a finding (PD04.explicit-collect).")
    """A check's code or a finding's full id."""
    reason: str = required("Say why the finding is accepted; the report shows it.")
    """Why, in the owner's words; never empty."""
    where: str = setting("", WHERE)
    """`train.py` or `train.py::function`; everywhere when empty."""
    expires: date | None = None
    """The last day on which it counts."""
    origin: str = setting("", key=NO_KEY)
    """Where it was written: `suppress[1] in perfdoctor.toml`, `train.py:41`."""


def read_suppressions(tables: object, place: Place) -> tuple[Suppression, ...]:
    """`[[suppress]]`. Raises PerfdoctorError."""
    file = place.source.name if place.source else ""
    entries = enumerate(TABLES.decode(tables, place), 1)
    found = [
        (number, decode(Suppression, entry, Place(place.source, f"{place.key}[{number}]"))) for number, entry in entries
    ]
    return tuple(replace(entry, origin=f"suppress[{number}] in {file}") for number, entry in found)


@dataclass(frozen=True, slots=True)
class MalformedComment:
    """A comment that means to silence a finding but does not say what or why; it silences nothing."""

    place: str
    """`train.py:41`."""
    problem: str
    """What is missing and how to write it, as a clause."""


_FORMER = {
    "PD10.anomaly-detection": "PD16.anomaly-detection",
    "PD10.slow-update": "PD17.slow-update",
    "PD10.state-copies": "PD17.state-copies",
}
"""Findings that another check makes now, by the id under which somebody may have accepted them."""


def names(code_or_id: str, finding_id: str) -> bool:
    """Whether a check's code or a full id means this finding."""
    return _FORMER.get(code_or_id, code_or_id) in (finding_id, code_of(finding_id))


def code_of(code_or_id: str) -> str:
    """`PD03` of `PD03.too-few-workers`, and of itself."""
    return code_or_id.partition(".")[0]


def match(suppression: Suppression, finding: Finding, today: date) -> Match:
    """Whether it silences the finding: "expired" when it would have until its last day."""
    if not names(suppression.code, finding.id) or not _lies_in(finding, suppression.where):
        return "no"
    return "expired" if is_expired(suppression, today) else "active"


def is_expired(suppression: Suppression, today: date) -> bool:
    """Whether its last day is over."""
    return suppression.expires is not None and today > suppression.expires


def inline_suppression(finding: Finding, cwd: Path) -> Suppression | MalformedComment | None:
    """The comment that silences the finding, or tries to; None without one, or without the source.

    Relative locations are taken from `cwd`. A well-formed comment wins over a malformed one.
    """
    location = finding.location
    if location is None or location.line < 1:
        return None
    lines = _source(cwd / location.file)
    malformed: MalformedComment | None = None
    for number in _comment_lines(lines, location.line):
        said = _read(lines[number - 1], finding.id, f"{location.file}:{number}")
        if isinstance(said, Suppression):
            return said
        malformed = malformed or said
    return malformed


def _lies_in(finding: Finding, where: str) -> bool:
    if not where:
        return True
    if finding.location is None:
        return False
    file, _, function = where.partition("::")
    wanted = PurePosixPath(file).parts
    if PurePosixPath(finding.location.file).parts[-len(wanted) :] != wanted:
        return False
    # A recording holds a function's bare name, its owner may write the class as well.
    return not function or finding.location.function.rpartition(".")[2] == function.rpartition(".")[2]


def _source(path: Path) -> list[str]:
    """The file's lines as Python counts them; none when it cannot be read."""
    try:
        # Not splitlines(): that also splits at form feeds and at separators inside strings.
        if not path.is_file() or path.stat().st_size > _LONGEST_BYTES:
            return []
        return path.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return []


def _comment_lines(lines: list[str], line: int) -> list[int]:
    """The line itself and the comment lines directly above it, nearest first."""
    if line > len(lines):
        return []
    found = [line]
    while found[-1] > 1 and lines[found[-1] - 2].lstrip().startswith("#"):
        found.append(found[-1] - 1)
    return found


def _read(line: str, finding_id: str, place: str) -> Suppression | MalformedComment | None:
    """What one line's comments say about the finding."""
    comment = _COMMENT.search(line)
    if comment is None:
        return None
    parts = _CODES.match(comment["rest"])
    codes = tuple(code for code in re.split(r"[,\s]+", parts["codes"]) if code) if parts else ()
    if parts is None or not codes:
        return MalformedComment(place, f"it names no check; {_HOW}")
    code = next((code for code in codes if names(code, finding_id)), None)
    if code is None:
        return None
    dashes, reason = parts["after"].strip()[:2], _NEXT_COMMENT.sub("", parts["after"].strip()[2:]).strip()
    if dashes != "--" or not reason:
        return MalformedComment(place, f"it gives no reason; {_HOW}")
    return Suppression(code, reason, origin=place)
