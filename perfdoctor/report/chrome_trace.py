"""The operator window's own trace, as Perfetto and chrome://tracing open it, with what perfdoctor knows on tracks of
its own: the steps, their parts, and the findings at what they cost.

A finding lies over the calls of the layer that its line makes or calls, over the reads of scalars where its line alone
makes them, over the updates where it makes the optimizer, over the part of the step that its cost is billed to, or else
over the whole step. Where nothing of that is in these steps, it is a mark at their beginning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..diagnosis.diagnoses import Diagnosis
from ..diagnosis.findings import Location, Part
from ..evidence.model import Evidence, Missing, Site
from ..injected._perfdoctor_probe.records import LAYER_RANGE
from ..launch.masking import MASK, without_identity
from ..recording.decoding import parsed
from ..recording.kept_trace import KeptTrace, TracedLayer
from ..version import VERSION
from . import wording
from .anatomy import LOOKS
from .content import FindingText, prepare

Event = dict[str, Any]

OWN_THREADS = 1 << 30
"""Number of our first track: the kernel gives none above 2^22."""
_OURS = "perfdoctor"
_FREE_TEXT = ("user_annotation", "gpu_user_annotation", "python_function")
"""Categories of events whose names the job has made; those of operators are torch's."""
_BILLED = {Part.INPUT_WAIT: "input_wait", Part.GC: "gc", Part.COMMUNICATION: "communication"}
"""Parts of a step that a cost may be billed to, by their name in a recording; others are billed to the whole of it."""
_UPDATE = "Optimizer.step#"
_READ = "aten::_local_scalar_dense"
_NOTE = (
    "Recorded under torch.profiler, which makes steps longer: times and savings of findings are those of steady steps "
    "without it."
)


@dataclass(frozen=True, slots=True)
class _Span:
    """From when to when, in the trace's microseconds."""

    start: float
    end: float


def annotated(text: bytes, kept: KeptTrace, diagnosis: Diagnosis, rank: int = 0) -> str:
    """The trace `text`, as torch wrote it for this rank, with our tracks. Raises ValueError where it is no trace."""
    trace = parsed(text.decode("utf-8", "replace"), strict=False)
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        raise ValueError("it holds no events")
    host = trace.pop("host_name", "")
    trace.pop("traceName", None)  # a path
    events = [event for event in trace["traceEvents"] if isinstance(event, dict)]
    _mask(events, host if isinstance(host, str) else "")
    _name_layers(events, kept.layers)
    process = next((e["pid"] for e in events if e.get("tid") == kept.thread and e.get("pid")), kept.thread)
    clock_ns = kept.clock_ns - int(trace.get("baseTimeNanoseconds", 0))
    tracks = _Tracks(process, clock_ns, min((e["ts"] for e in events if _lasts(e)), default=0))
    content = prepare(diagnosis)
    _add_steps(tracks, kept, content.step)
    tracks.events += _marked([e for e in events if e.get("tid") == kept.thread and _lasts(e)], kept, tracks)
    users = _users(diagnosis.evidence)
    for finding in (finding for section in content.sections for finding in section.findings):
        _add_finding(tracks, finding, users, _places(finding, kept, diagnosis, events, tracks), kept)
    about = {"version": VERSION, "verdict": _public(content.verdict, users), "note": _NOTE}
    ranks = diagnosis.evidence.job.world_size
    placed = {"distributedInfo": {"rank": rank, "world_size": ranks}} if ranks > 1 else {}
    return json.dumps({**placed, **trace, _OURS: about, "traceEvents": [*events, *tracks.events]})


def _mask(events: Iterable[Event], host: str) -> None:
    """Who ran the job, and where, out of what the job has named."""
    for event in events:
        if event.get("cat") in _FREE_TEXT and isinstance(event.get("name"), str):
            event["name"] = without_identity(event["name"], host)
        if event.get("ph") == "M" and isinstance(event.get("args"), dict):
            args = event["args"]
            event["args"] = {k: without_identity(v, host) if isinstance(v, str) else v for k, v in args.items()}


def _layer_of(event: Event) -> int:
    """The number of the layer whose call it is; -1 for anything else."""
    number = str(event.get("name", "")).removeprefix(LAYER_RANGE)
    return int(number) if number.isdecimal() and str(event["name"]).startswith(LAYER_RANGE) else -1


def _name_layers(events: Iterable[Event], layers: Sequence[TracedLayer]) -> None:
    """The names that users know in the place of ours, and as ranges of the program: no operator of torch's is one."""
    for event in events:
        number = _layer_of(event)
        if 0 <= number < len(layers):
            layer = layers[number]
            places = {"made at": layer.made_at, "called at": layer.called_at}
            event["name"] = f"{layer.name} ({layer.kind})" if layer.name else layer.kind
            event["cat"] = "user_annotation"
            event["args"] = {
                **event.get("args", {}),
                "layer": number,
                **{name: _shown(site) for name, site in places.items() if site is not None},
            }


class _Tracks:
    """Threads of our own in the job's process, and what lies on them."""

    def __init__(self, process: object, clock_ns: int, began: float) -> None:
        """`clock_ns`: what to add to a recording's time to get the trace's. `began`: the earliest time in the trace."""
        self.process = process
        self.clock_ns = clock_ns
        self.began = began
        self.events: list[Event] = []
        self.count = 0

    def add(self, name: str) -> int:
        """A track below those before it, above the job's threads."""
        track, self.count = OWN_THREADS + self.count, self.count + 1
        for kind, value in (("thread_name", {"name": name}), ("thread_sort_index", {"sort_index": self.count - 1000})):
            self.events.append(
                {"ph": "M", "name": kind, "pid": self.process, "tid": track, "ts": self.began, "args": value}
            )
        return track

    def span(self, start_ns: int, end_ns: int) -> _Span:
        """A recording's times as the trace's."""
        return _Span((start_ns + self.clock_ns) / 1000, (end_ns + self.clock_ns) / 1000)

    def draw(self, track: int, name: str, span: _Span, cat: str = _OURS, **args: object) -> None:
        """What lasts."""
        lasts = {"ts": round(span.start, 3), "dur": round(span.end - span.start, 3)}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": self.process, "tid": track, **lasts, "args": args}
        )

    def mark(self, track: int, name: str, at: float, **args: object) -> None:
        """What does not."""
        ts = round(at, 3)
        self.events.append(
            {"ph": "i", "s": "t", "cat": _OURS, "name": name, "pid": self.process, "tid": track, "ts": ts, "args": args}
        )


def _add_steps(tracks: _Tracks, kept: KeptTrace, steady: str) -> None:
    """As the loop took them, and their parts below."""
    track = tracks.add(f"{_OURS}: steps")
    without = {"a steady step, without the profiler": steady} if steady else {}
    for step in kept.steps:
        span = tracks.span(step.start_ns, step.end_ns)
        tracks.draw(track, f"step {step.step}", span, **without)
    more = f" ({wording.plural(kept.parts_left_out, 'part')} more)" if kept.parts_left_out else ""
    track = tracks.add(f"{_OURS}: parts of the step{more}")
    for part in kept.parts:
        look = LOOKS.get(part.part)
        tracks.draw(track, look.label if look else part.part, tracks.span(part.start_ns, part.end_ns))


def _users(evidence: Evidence) -> frozenset[str]:
    """Whose processes a finding may name."""
    host = evidence.host
    return frozenset() if isinstance(host, Missing) else frozenset(other.user for other in host.neighbours)


def _public(text: str, users: Iterable[str]) -> str:
    """A sentence of a report, fit for other people's eyes."""
    for user in users:
        text = text.replace(f"user {user})", f"user {MASK})")
    return without_identity(text)


def _marked(ran: Sequence[Event], kept: KeptTrace, tracks: _Tracks) -> list[Event]:
    """The steps once more, under the name by which tools know them and on the loop's own thread, as if the loop had
    called `profiler.step()`.

    There they must nest with what `ran`. A step ends within `Optimizer.step`, in its hooks, and what follows there is
    perfdoctor's work, so that range is cut; so is what the window's end has left open. Any other range in which a step
    ends is the job's own, and the step is drawn to its end.
    """
    marks: list[Event] = []
    spans = [tracks.span(step.start_ns, step.end_ns) for step in kept.steps]
    reached = 0.0
    for number, (step, span) in enumerate(zip(kept.steps, spans, strict=True)):
        start = max(span.start, reached)
        crossing = [event for event in ran if start < event["ts"] < span.end < _span(event).end]
        is_last = number == len(spans) - 1
        reached = span.end
        for event in crossing:
            if is_last or str(event.get("name")).startswith(_UPDATE):
                event["dur"] = round(span.end - event["ts"], 3)
            elif _span(event).end < spans[number + 1].end:  # else the range of an epoch, which began here
                reached = max(reached, _span(event).end)
        place = {"pid": tracks.process, "tid": kept.thread, "ts": round(start, 3), "dur": round(reached - start, 3)}
        marks.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step.step}", **place, "args": {}})
    return marks


def _add_finding(
    tracks: _Tracks, text: FindingText, users: Iterable[str], places: Sequence[_Span], kept: KeptTrace
) -> None:
    """On a track of its own."""
    said = {
        "kind": text.kind,
        "where": text.where,
        "ranks": text.ranks,
        "costs": text.cost,
        "saves": text.saves,
        "fix": text.fix,
        "more": f"perfdoctor explain {text.finding.id.partition('.')[0]}",
    }
    said = {name: _public(words, users) for name, words in said.items() if words}
    message = _public(text.message, users)
    track = tracks.add(f"{_OURS}: {text.kind} {text.finding.id}" + (f", {text.ranks}" if text.ranks else ""))
    for place in places:
        tracks.draw(track, message, place, **said)
    if not places and kept.steps:
        first = tracks.span(kept.steps[0].start_ns, kept.steps[0].end_ns)
        tracks.mark(track, f"{message} None of it is in these steps.", first.start, **said)


def _places(
    text: FindingText, kept: KeptTrace, diagnosis: Diagnosis, events: Sequence[Event], tracks: _Tracks
) -> list[_Span]:
    """Where the finding's cost lies in these steps, in order; spans inside another are left out."""
    finding = text.finding
    part = finding.savings.part
    found = list(_calls(finding.location, kept.layers, events)) if part in (Part.COMPUTE, Part.OTHER) else []
    if not found and _reads_alone(finding.location, diagnosis):
        found = [_span(event) for event in events if event.get("name") == _READ and _lasts(event)]
    name = "optimizer" if _is_at(_update(diagnosis.evidence), finding.location) else _BILLED.get(part)
    if not found and name is not None:
        found = [tracks.span(p.start_ns, p.end_ns) for p in kept.parts if p.part == name]
    elif not found and part is not Part.EPOCH:
        found = [tracks.span(step.start_ns, step.end_ns) for step in kept.steps]
    outer: list[_Span] = []
    for span in sorted(found, key=lambda span: (span.start, -span.end)):
        if not outer or span.start >= outer[-1].end:
            outer.append(span)
    return outer


def _calls(location: Location | None, layers: Sequence[TracedLayer], events: Iterable[Event]) -> Iterator[_Span]:
    """Of the layers that this line makes, or calls where it makes none."""
    made = {number for number, layer in enumerate(layers) if _is_at(layer.made_at, location)}
    called = {number for number, layer in enumerate(layers) if _is_at(layer.called_at, location)}
    for event in events:
        if isinstance(event.get("args"), Mapping) and event["args"].get("layer") in (made or called) and _lasts(event):
            yield _span(event)


def _reads_alone(location: Location | None, diagnosis: Diagnosis) -> bool:
    """Whether all reads of scalars in the loop are this line's."""
    sites = diagnosis.evidence.call_sites
    reads = () if isinstance(sites, Missing) else [call.site for call in sites if call.kind == "scalar_read"]
    return bool(reads) and all(_is_at(site, location) for site in reads)


def _update(evidence: Evidence) -> Site | None:
    """The line that made the job's first optimizer."""
    return None if isinstance(evidence.ops, Missing) else evidence.ops.optimizer_at


def _is_at(site: Site | None, location: Location | None) -> bool:
    return site is not None and location is not None and (site.file, site.line) == (location.file, location.line)


def _shown(site: Site) -> str:
    return without_identity(wording.clean(str(site)))


def _lasts(event: Event) -> bool:
    return event.get("ph") == "X" and all(isinstance(event.get(name), (int, float)) for name in ("ts", "dur"))


def _span(event: Event) -> _Span:
    return _Span(event["ts"], event["ts"] + event["dur"])
