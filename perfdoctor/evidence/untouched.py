"""The part of a recording in which the job ran as it is: before any remedy was tried on it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from ..recording.model import Columns, ProcessRecording
from ..recording.process import Sample


def untouched(process: ProcessRecording) -> ProcessRecording:
    """`process` up to the step from which remedies were tried; as it is when none was.

    All that happened in a step is cut. What is known once (settings, windows, timings, batches' sizes) is kept: it was
    taken before.
    """
    if process.trials is None:
        return process
    end = process.trials.step
    return replace(process, **{f.name: _before(end, getattr(process, f.name)) for f in fields(process)})


def _before(end: int, records: Any) -> Any:
    if isinstance(records, Columns):
        return records.where(records["step"] < end) if "step" in records.arrays else records
    if not isinstance(records, tuple) or not hasattr(next(iter(records), None), "step"):
        return records
    # A sample is taken between two steps.
    return tuple(one for one in records if one.step < end + isinstance(one, Sample))
