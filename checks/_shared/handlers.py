"""Loggers whose handlers write each record several times to the same place."""

from __future__ import annotations

from perfdoctor.api.quantities import Evidence, Missing, RepeatedHandlers

_RECORDS = "logging"
"""What lines that log are said to call, if they call a logger of Python's."""


def repeated_handlers(evidence: Evidence) -> tuple[RepeatedHandlers, float] | None:
    """Those that are there most often, and milliseconds per step in which log records are written, in the mean; None
    where nothing is logged, or each record is written once."""
    growth, lines = evidence.growth, evidence.logging
    if isinstance(growth, Missing) or isinstance(lines, Missing) or not growth.repeated_handlers:
        return None
    spent = sum(line.ms_per_step for line in lines if line.name == _RECORDS)
    return (growth.repeated_handlers[0], spent) if spent > 0 else None


def needless_ms(evidence: Evidence) -> float:
    """What all but one of them take, per step, in the mean of the steps that were watched."""
    seen = repeated_handlers(evidence)
    if seen is None:
        return 0.0
    one, spent = seen[0].found, seen[1]
    times = (1 + one.times) / 2 if one.grows else one.times
    return spent * (1 - 1 / times)
