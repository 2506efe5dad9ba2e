"""The line of the user's code that a finding points at."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from pathlib import Path

from ..diagnosis.findings import Location
from ..evidence.model import Job
from . import wording

LONGEST_BYTES = 4_000_000
"""Nobody writes longer files by hand; reading one takes no noticeable time."""


def source_line(location: Location | None, job: Job) -> str:
    """The line without its indentation; "" where the file is gone, no Python, or changed since the job began."""
    if location is None or location.line < 1:
        return ""
    path = Path(job.cwd) / location.file
    try:
        status = path.stat()
        if path.suffix != ".py" or not path.is_file() or status.st_size > LONGEST_BYTES:
            return ""
        # The start is known in whole seconds.
        if status.st_mtime > datetime.fromisoformat(job.started.replace("Z", "+00:00")).timestamp() + 1:
            return ""
        with path.open(encoding="utf-8") as file:
            line = next(islice(file, location.line - 1, None), "")
    except (OSError, ValueError):
        return ""
    return wording.clean(line).strip()
