"""Every step of one rank over the run, with what happened beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....evidence.model import Missing
from ....evidence.steady import Mask, Selection, in_judged_phase
from ....recording.model import Ints, ProcessRecording
from ... import wording
from ...anatomy import LOOKS
from ...jsonform import plain
from .model import Chart
from .numbers import Floats, shortened

MOST_POINTS = 10_000
"""Drawn: above, each point is some steps in a row. A screen has fewer columns."""
MOST_MARKS = 1_000
"""Of a kind that are drawn: more are a grey band, and text for megabytes."""
LARGE_PART = 0.05
"""Of all the time: a smaller part of the step is a line at the bottom that tells nothing."""
MOST_PARTS = 4
"""Besides the step itself: more lines than that cannot be told apart."""
WIDE = 20
"""The longest step over the median: from there on a linear axis shows only the longest."""

_Spans = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    hue: str
    """Of the page's palette; "" for the colour of text."""
    ms: list[float]


@dataclass(frozen=True, slots=True)
class _Mark:
    """One kind of thing that happened."""

    kind: str
    label: str
    spans: _Spans
    left_out: int


def steps_chart(process: ProcessRecording, selection: Selection | Missing) -> Chart | None:
    """`process` with all its steps, those of trials too; `selection` of those before. None without a step."""
    rows = process.steps
    if len(rows) < 2:
        return None
    numbers, wall = rows["step"], rows["wall_us"] / 1000
    group = -(-len(rows) // MOST_POINTS)
    parts = _large_parts(process, wall)
    lines = [_line("step", "", _medians(wall, group))]
    if group > 1:
        lines.append(_line(f"longest of {group} steps", "dim", _highest(wall, group)))
    lines += [_line(LOOKS[name].label, LOOKS[name].style, _medians(ms, group)) for name, ms in parts.items()]
    marks = [
        _Mark(kind, label, spans[:MOST_MARKS], max(0, len(spans) - MOST_MARKS))
        for kind, label, spans in _marks(process, selection)
        if spans
    ]
    median, longest_ms = float(np.median(wall)), float(wall.max())
    return Chart(
        title="Steps over time",
        caption=_caption(process, wall, median, group),
        head=("steps", "median", "longest", "marked in them"),
        rows=tuple(_tenths(numbers, wall, marks)),
        data=plain(
            {
                "first": numbers[::group].tolist(),
                "last": int(numbers[-1]),
                "lines": lines,
                "marks": marks,
                "log": median > 0 and longest_ms > WIDE * median,
            }
        ),
    )


def _caption(process: ProcessRecording, wall: Floats, median: float, group: int) -> str:
    longest = int(wall.argmax())
    of_rank = f" of rank {process.rank}" if process.world_size > 1 else ""
    text = (
        f"{wording.plural(len(wall), 'step')}{of_rank}: half of them take up to {wording.duration(median)}, 19 of 20 "
        f"up to {wording.duration(float(np.percentile(wall, 95)))}; the longest, step "
        f"{int(process.steps['step'][longest])}, takes {wording.duration(float(wall[longest]))}."
    )
    return f"{text} Each point is the median of {group} steps in a row." if group > 1 else text


def _large_parts(process: ProcessRecording, wall: Floats) -> Mapping[str, Floats]:
    """The largest parts of the step, ms, in the order in which they are drawn elsewhere."""
    named = {name: process.steps[f"{name}_us"] / 1000 for name in LOOKS if f"{name}_us" in process.steps.arrays}
    total = float(wall.sum())
    large = sorted((name for name in named if named[name].sum() > LARGE_PART * total), key=lambda n: -named[n].sum())
    return {name: ms for name, ms in named.items() if name in large[:MOST_PARTS]}


# ---------------------------------------------------------------------------------------------------------
# Points


def _grouped(values: Floats, group: int) -> Floats:
    """So many in a row; the last row filled up with what is in it."""
    missing = -len(values) % group
    return np.concatenate([values, np.full(missing, values[-1])]).reshape(-1, group)


def _medians(values: Floats, group: int) -> Floats:
    return values if group == 1 else np.asarray(np.median(_grouped(values, group), axis=1), np.float64)


def _highest(values: Floats, group: int) -> Floats:
    return np.asarray(_grouped(values, group).max(axis=1), np.float64)


def _line(label: str, hue: str, ms: Floats) -> _Line:
    return _Line(label, hue, [shortened(float(value)) for value in ms])


# ---------------------------------------------------------------------------------------------------------
# What happened


def _marks(process: ProcessRecording, selection: Selection | Missing) -> Iterable[tuple[str, str, _Spans]]:
    """Kind, what a reader calls it, and the steps from and to which it was, in order."""
    rows = process.steps
    numbers = rows["step"]
    judged = in_judged_phase(process)
    if not isinstance(selection, Missing):
        yield "warm_up", "warm-up", _runs(numbers, judged & (numbers < selection.first))
    yield "phase", "another phase of training: not judged", _runs(numbers, ~judged)
    yield "window", "perfdoctor measures: such steps are left out", _runs(numbers, rows["marked"] == 1)
    yield "profiler", "the job's own profiler", _profiled(process)
    yield "trial", "trials of remedies", _trials(process)
    yield "epoch", "an iterator of a loader starts", _single(iterator.step for iterator in process.iterators)
    if len(process.evaluations):
        yield "evaluation", "forward passes without training", _single(process.evaluations["step"].tolist())
    yield "gc", "full garbage collection", _single(one.step for one in process.full_collections)
    yield "checkpoint", "a checkpoint is saved", _runs(numbers, rows["checkpoint_us"] > 0)
    yield "compile", "torch.compile compiles", _compiled(process)


def _runs(numbers: Ints, mask: Mask) -> _Spans:
    """Steps of a mask, neighbours joined."""
    return _single(int(step) for step in numbers[mask])


def _single(steps: Iterable[int]) -> _Spans:
    """Steps in order, neighbours joined, those before the first one left out."""
    spans: _Spans = []
    for step in sorted({step for step in steps if step >= 0}):
        if spans and spans[-1][1] == step - 1:
            spans[-1] = spans[-1][0], step
        else:
            spans.append((step, step))
    return spans


def _profiled(process: ProcessRecording) -> _Spans:
    last = int(process.steps["step"][-1])
    # Each is on until the next starts or ends; the last until the job ends.
    until = [*(switched.step for switched in process.profiler), last + 1][1:]
    pairs = zip(process.profiler, until, strict=True)
    return [(switched.step, max(switched.step, end - 1)) for switched, end in pairs if switched.on]


def _trials(process: ProcessRecording) -> _Spans:
    """Blocks of steps with a remedy in place."""
    blocks = (block for block in process.blocks if block.remedy is not None and block.n > 0)
    return sorted((block.step, block.step + block.n - 1) for block in blocks)


def _compiled(process: ProcessRecording) -> _Spans:
    ends, numbers = process.steps["end_ns"], process.steps["step"]
    places = np.searchsorted(ends, [one.t for one in process.compiled])
    return _single(int(numbers[place]) for place in places if place < len(numbers))


def _tenths(numbers: Ints, wall: Floats, marks: Sequence[_Mark]) -> Iterable[tuple[str, ...]]:
    """The table: a tenth of the run in each row."""
    for piece in np.array_split(np.arange(len(wall)), min(10, len(wall))):
        first, last = int(numbers[piece[0]]), int(numbers[piece[-1]])
        held = [
            f"{mark.label} ({count})"
            for mark in marks
            if (count := sum(start <= last and end >= first for start, end in mark.spans))
        ]
        median, longest = float(np.median(wall[piece])), float(wall[piece].max())
        yield f"{first} to {last}", wording.duration(median), wording.duration(longest), "; ".join(held)
