"""A gate that could not compare anything, as a result like any other: its reports say why."""

from __future__ import annotations

import sys

from ..errors import PerfdoctorError
from ..exits import Exit
from ..gate.failure import JobFailedError
from ..gate.model import Arm, GateResult, Verdict
from .check import last_words

REPORTED = (Exit.JOB_FAILED, Exit.NOT_MEASURABLE)
"""Wrong options are for whoever typed them, and crashes of perfdoctor for its authors."""


def as_result(error: PerfdoctorError, before: str) -> GateResult:
    """The error as a verdict. What the job printed last goes to stderr as a whole, its last line into the reports."""
    notes = [error.advice]
    lines = last_words(error.output) if isinstance(error, JobFailedError) and error.output else []
    if any(lines):
        print("\n".join(lines), file=sys.stderr)
        notes.append(f"the last line of its output: {next(line for line in reversed(lines) if line.strip())}")
    verdict = Verdict.FAILED if error.exit_code is Exit.JOB_FAILED else Verdict.NOT_COMPARABLE
    return GateResult(verdict, error.message, Arm(before), Arm("this run"), notes=tuple(notes))
