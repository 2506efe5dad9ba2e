"""The part of a recording in which the job ran as it is: before any remedy was tried on it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Protocol, TypeVar

from ..recording.model import Columns, ProcessRecording


class _InStep(Protocol):
    @property
    def step(self) -> int: ...


T = TypeVar("T", bound=_InStep)


def untouched(process: ProcessRecording) -> ProcessRecording:
    """`process` up to the step from which remedies were tried; as it is when none was.

    What is known once (settings, windows, timings, batches' sizes) is kept: it was taken before.
    """
    if process.trials is None:
        return process
    end = process.trials.step

    def before(records: Iterable[T]) -> tuple[T, ...]:
        return tuple(record for record in records if record.step < end)

    return replace(
        process,
        steps=_cut(process.steps, end),
        batches=_cut(process.batches, end),
        samples=tuple(sample for sample in process.samples if sample.step <= end),
        iterators=before(process.iterators),
        iterators_ended=before(process.iterators_ended),
        collections=before(process.collections),
        full_collections=before(process.full_collections),
        calls=before(process.calls),
        eval_with_grad=before(process.eval_with_grad),
        forwards_seen=before(process.forwards_seen),
        device=_cut(process.device, end) if "step" in process.device.arrays else process.device,
    )


def _cut(columns: Columns, end: int) -> Columns:
    early = columns["step"] < end
    return Columns({name: column[early] for name, column in columns.arrays.items()})
