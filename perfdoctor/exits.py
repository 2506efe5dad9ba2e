"""Exit codes, the table that the README shows. Precedence when several apply: 5 > 4 > 2 > 3 > 1 > 0."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """What `perfdoctor` tells the shell."""

    OK = 0
    """No finding at or above `--fail-on`; a gate passed, or found an improvement."""
    FINDINGS = 1
    """A finding at or above `--fail-on`, or a confirmed regression."""
    USAGE = 2
    """Wrong options, configuration or recording."""
    NOT_MEASURABLE = 3
    """No step, or too few, to judge; a gate that cannot tell, or whose sides do not do the same work."""
    JOB_FAILED = 4
    """The user's program failed or was killed."""
    INTERNAL = 5
    """perfdoctor itself failed, or a check crashed."""


_PRECEDENCE = (Exit.INTERNAL, Exit.JOB_FAILED, Exit.USAGE, Exit.NOT_MEASURABLE, Exit.FINDINGS, Exit.OK)


def worst(*codes: Exit) -> Exit:
    """The code that wins when several apply; `Exit.OK` for none."""
    return next((code for code in _PRECEDENCE if code in codes), Exit.OK)
