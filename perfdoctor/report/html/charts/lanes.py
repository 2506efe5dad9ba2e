"""One step on its host's threads and its devices, from what torch.profiler recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....evidence.model import Missing
from ....evidence.traced.window import window
from ....injected._perfdoctor_probe.records import LAYER_RANGE
from ....recording.decoding import parsed
from ....recording.kept_trace import KeptTrace, TracedLayer
from ....traces.model import Trace
from ... import wording
from ...anatomy import LOOKS
from ...jsonform import plain
from .model import Chart

MOST_SPANS = 4_000
"""Drawn: the longest. A step of a large model has more operators than a screen has pixels, 20 bytes each."""
MOST_ROWS = 6
"""Of one lane: calls within calls deeper than that are too short to be told apart."""
LISTED = 12
"""Of the table."""

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_OPERATORS, _LAYERS, _PARTS = "operators", "layers", "parts of the step"
_HUES = {look.label: look.style for look in LOOKS.values()}
"""Parts of the step have the colours that they have everywhere on the page; other names that of their lane."""


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when something ran, microseconds."""

    lane: str
    name: str
    start: float
    end: float


def lanes_of_run(text: bytes, kept: KeptTrace) -> Chart | None:
    """`text`: the operator window's trace, as torch wrote it. None where it has no step. Raises ValueError where it is
    no trace."""
    trace = parsed(text.decode("utf-8", "replace"), strict=False)
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ValueError("it holds no events")
    if not kept.steps:
        return None
    clock_ns = kept.clock_ns - int(trace.get("baseTimeNanoseconds", 0))
    by_length = sorted(kept.steps, key=lambda step: step.end_ns - step.start_ns)
    step = by_length[len(by_length) // 2]
    parts = [
        Span(_PARTS, look.label if (look := LOOKS.get(part.part)) else part.part, start, end)
        for part in kept.parts
        for start, end in [((part.start_ns + clock_ns) / 1000, (part.end_ns + clock_ns) / 1000)]
    ]
    spans = [*parts, *_events(trace["traceEvents"], kept)]
    borders = (step.start_ns + clock_ns) / 1000, (step.end_ns + clock_ns) / 1000
    return _chart(f"Step {step.step} in lanes", spans, borders)


def lanes_of_trace(trace: Trace) -> Chart | None:
    """Of the profiler's own steps the one of median length; None in a trace without any."""
    found = window(trace)
    if isinstance(found, Missing) or found.boundary != "profiler":
        return None
    middle = int(np.argsort(found.step_us)[len(found.step_us) // 2])
    steps = trace.marks.where(np.array([trace.named(i).startswith("ProfilerStep#") for i in trace.marks.name.tolist()]))
    steps = steps.where(steps.thread == found.thread)
    borders = float(steps.start_us[middle]), float(steps.end_us[middle])
    spans = []
    operators, work = trace.operators, trace.work
    inside = (operators.start_us < borders[1]) & (operators.end_us > borders[0])
    for row in np.flatnonzero(inside).tolist():
        thread = int(operators.thread[row])
        lane = _OPERATORS if thread == found.thread else f"{_OPERATORS}, thread {thread}"
        spans.append(
            Span(lane, trace.named(operators.name[row]), float(operators.start_us[row]), float(operators.end_us[row]))
        )
    for row in np.flatnonzero((work.start_us < borders[1]) & (work.end_us > borders[0])).tolist():
        lane = _stream(int(work.device[row]), int(work.stream[row]))
        spans.append(Span(lane, trace.named(work.name[row]), float(work.start_us[row]), float(work.end_us[row])))
    return _chart(f"{trace.named(steps.name[middle])} in lanes", spans, borders)


def _events(events: Iterable[Any], kept: KeptTrace) -> Iterable[Span]:
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        start, lasts, name = event.get("ts"), event.get("dur"), str(event.get("name", ""))
        if not isinstance(start, (int, float)) or not isinstance(lasts, (int, float)):
            continue
        category, thread = event.get("cat"), event.get("tid")
        end = start + lasts
        layer = _layer(name, kept.layers) if thread == kept.thread else ""
        if layer:
            yield Span(_LAYERS, layer, start, end)
        elif category == "cpu_op":
            yield Span(_OPERATORS if thread == kept.thread else f"{_OPERATORS}, thread {thread}", name, start, end)
        elif category in _ON_DEVICE:
            args = event.get("args") or {}
            yield Span(_stream(args.get("device", 0), args.get("stream", 0)), name, start, end)


def _layer(name: str, layers: Sequence[TracedLayer]) -> str:
    """The module whose call an event is; "" for another event."""
    number = name.removeprefix(LAYER_RANGE)
    if number == name or not number.isdecimal() or int(number) >= len(layers):
        return ""
    layer = layers[int(number)]
    return f"{layer.name} ({layer.kind})" if layer.name else layer.kind


def _stream(device: object, stream: object) -> str:
    return f"device {device}, stream {stream}"


# ---------------------------------------------------------------------------------------------------------
# The chart


def _chart(title: str, spans: Iterable[Span], borders: tuple[float, float]) -> Chart | None:
    """`borders`: of the step."""
    begin, end = borders
    inside = [span for span in spans if span.end > begin and span.start < end and span.end > span.start]
    if not inside:
        return None
    kept = sorted(inside, key=lambda span: span.start - span.end)[:MOST_SPANS]
    by_lane: dict[str, list[Span]] = defaultdict(list)
    for span in kept:
        by_lane[span.lane].append(span)
    lanes = sorted(by_lane, key=_order)
    names = sorted({wording.clean(span.name) for span in kept})
    places = {name: i for i, name in enumerate(names)}
    drawn = []
    for lane in lanes:
        stacked = _stacked(by_lane[lane])
        rows = [
            [round(s.start - begin, 1), round(s.end - s.start, 1), places[wording.clean(s.name)], row]
            for s, row in stacked
        ]
        drawn.append({"name": lane, "rows": 1 + max(row for _, row in stacked), "spans": rows})
    host = [span for span in kept if span.lane == _OPERATORS]
    device = [span for span in kept if span.lane.startswith("device ")]
    return Chart(
        title=title,
        caption=_caption(borders, inside, device, len(inside) - len(kept)),
        head=("lane", "what", "calls", "in all"),
        rows=tuple(_largest(device) if device else ()) + tuple(_largest(_outermost(host))),
        data=plain(
            {
                "us": round(end - begin, 1),
                "names": names,
                "hues": [_HUES.get(name, "") for name in names],
                "lanes": drawn,
            }
        ),
    )


def _order(lane: str) -> tuple[int, str]:
    """As a reader asks: parts, layers, operators of the loop's thread, of others, devices."""
    first = [_PARTS, _LAYERS, _OPERATORS]
    return (first.index(lane) if lane in first else 4 if lane.startswith("device ") else 3), lane


def _stacked(spans: Sequence[Span]) -> list[tuple[Span, int]]:
    """Each with its row: what runs within another lies below it."""
    placed: list[tuple[Span, int]] = []
    open_until: list[float] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        while open_until and open_until[-1] <= span.start:
            open_until.pop()
        if len(open_until) < MOST_ROWS:
            placed.append((span, len(open_until)))
        open_until.append(span.end)
    return placed


def _outermost(spans: Sequence[Span]) -> list[Span]:
    return [span for span, row in _stacked(spans) if row == 0]


def _caption(borders: tuple[float, float], inside: Sequence[Span], device: Sequence[Span], left_out: int) -> str:
    begin, end = borders
    text = f"{wording.duration((end - begin) / 1000)} under torch.profiler, which makes a step longer."
    if device:
        busy = _covered(device, begin, end)
        text += (
            f" A device has work for {wording.duration(busy / 1000)} of them, {wording.share(busy / (end - begin))}."
        )
    if left_out:
        text += f" The {MOST_SPANS:,} longest of {len(inside):,} spans are drawn."
    return text


def _covered(spans: Sequence[Span], begin: float, end: float) -> float:
    """Time within the borders in which one of them is under way."""
    total, reached = 0.0, begin
    for span in sorted(spans, key=lambda span: span.start):
        start, stop = max(span.start, reached), min(span.end, end)
        total += max(0.0, stop - start)
        reached = max(reached, stop)
    return total


def _largest(spans: Iterable[Span]) -> Iterable[tuple[str, ...]]:
    """Names by what they take in all."""
    took: dict[tuple[str, str], list[float]] = defaultdict(list)
    for span in spans:
        took[span.lane, wording.clean(span.name)].append(span.end - span.start)
    for (lane, name), each in sorted(took.items(), key=lambda item: -sum(item[1]))[:LISTED]:
        yield lane, name, wording.count(len(each)), wording.duration(sum(each) / 1000)
