"""The line of the user's code that a finding points at, and those around it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from ..diagnosis.findings import Location
from ..evidence.model import Job, Site
from . import wording

LONGEST_BYTES = 4_000_000
"""Nobody writes longer files by hand; reading one takes no noticeable time."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of a file."""

    number: int
    text: str
    hot: bool
    """The one that a finding points at."""


def source_line(location: Location | Site | None, job: Job) -> str:
    """The line without its indentation; "" where the file is gone, no Python, or changed since the job began."""
    return next((line.text.strip() for line in excerpt(location, job, 0)), "")


def excerpt(location: Location | Site | None, job: Job, around: int) -> tuple[SourceLine, ...]:
    """The line with so many before and after it, without their common indentation and without blank lines at the ends;
    empty where the file is gone, no Python, or changed since the job began."""
    if location is None or location.line < 1:
        return ()
    path = Path(job.cwd) / location.file
    first = max(1, location.line - around)
    try:
        status = path.stat()
        if path.suffix != ".py" or not path.is_file() or status.st_size > LONGEST_BYTES:
            return ()
        # The start is known in whole seconds.
        if status.st_mtime > datetime.fromisoformat(job.started.replace("Z", "+00:00")).timestamp() + 1:
            return ()
        with path.open(encoding="utf-8") as file:
            lines = list(islice(file, first - 1, location.line + around))
    except (OSError, ValueError):
        return ()
    if len(lines) <= location.line - first:
        return ()
    texts = textwrap.dedent("\n".join(wording.clean(line).rstrip().expandtabs(4) for line in lines)).split("\n")
    found = [SourceLine(number, text, number == location.line) for number, text in enumerate(texts, first)]
    written = [line.number for line in found if line.text or line.hot]
    return tuple(line for line in found if written[0] <= line.number <= written[-1])
