"""Whatever a file holds, reading it gives a trace or a clear error, never another exception, in bounded memory."""

from __future__ import annotations

import gzip
import json
import random
import resource
import tempfile
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from written_traces import as_the_profiler_writes, new_schema, old_schema

from perfdoctor.config.settings import Config
from perfdoctor.diagnosis.diagnoses import Diagnosis
from perfdoctor.diagnosis.examine import Rules, examine
from perfdoctor.diagnosis.outcomes import Check, OutcomeKind
from perfdoctor.diagnosis.registry import discover
from perfdoctor.errors import PerfdoctorError
from perfdoctor.evidence.traced.build import build
from perfdoctor.report.markdown import render_markdown
from perfdoctor.traces import text
from perfdoctor.traces.model import NOT_SAID, Trace
from perfdoctor.traces.reader import read

MOST_BYTES = 200 << 20
"""That all of these tests may add to the process."""
FLIPS = 800
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["X", "kernel", "cpu_op", "cuda_runtime", "s", "f", 1 << 63, -(1 << 70), 1e308]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = [
    *("ph", "cat", "name", "ts", "dur", "pid", "tid", "id", "args"),
    *("External id", "correlation", "device", "stream", "bytes", "Input Dims", "Input type", "Call stack"),
    *("Collective name", "In msg nelems", "Sequence number", "traceEvents", "deviceProperties", "distributedInfo"),
]


@cache
def recorded() -> str:
    """A trace of this PyTorch: two steps on the CPU, with stacks and shapes."""
    layer = torch.nn.Linear(4, 2)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=True
    ) as profiler:
        for _ in range(2):
            layer(torch.ones(3, 4)).sum().backward()
            profiler.step()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "trace.json")
        profiler.export_chrome_trace(str(path))
        whole = json.loads(path.read_text())
    # The start of the profiler itself is hundreds of functions deep.
    kept = [event for event in whole["traceEvents"] if event.get("cat") != "python_function"]
    functions = [event for event in whole["traceEvents"] if event.get("cat") == "python_function"]
    return as_the_profiler_writes({**whole, "traceEvents": kept + functions[-30:]})


@cache
def sources() -> tuple[str, ...]:
    return json.dumps(new_schema()), as_the_profiler_writes(old_schema()), recorded()


def read_or_refused(content: bytes, judge: bool = False) -> bool:
    """Whether a trace came of it; with a report of it, if asked."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "trace.json")
        path.write_bytes(content)
        try:
            trace = read(path)
        except PerfdoctorError as error:
            assert error.slug and error.advice and str(path) in error.message
            return False
    for spans in (trace.operators, trace.calls, trace.work, trace.marks, trace.frames):
        assert (np.diff(spans.start_us) >= 0).all() and (spans.end_us >= spans.start_us).all()
        assert np.isfinite(spans.end_us).all()
        assert len(spans) == 0 or -1 < spans.name.min() <= spans.name.max() < len(trace.names)
    assert ((trace.work.call >= NOT_SAID) & (trace.work.call < max(1, len(trace.calls)))).all()
    "\n".join(trace.names).encode()
    if judge:
        assert render_markdown(judged(trace), next_command="")
    return True


@cache
def checks() -> list[tuple[Check[Any], Any]]:
    return [(entry.check, entry.check.limits) for entry in discover()]


def judged(trace: Trace) -> Diagnosis:
    """Whatever a trace holds, there is a diagnosis of it, and no check fails."""
    diagnosis = examine(build([trace]), checks(), Rules(Config(), date(2026, 1, 1), lambda finding: None))
    assert [check.code for check in diagnosis.checks if check.outcome.kind is OutcomeKind.CRASHED] == []
    return diagnosis


def test_a_recording_of_this_pytorch_is_read() -> None:
    assert read_or_refused(recorded().encode())


@pytest.mark.parametrize(
    ("block", "judge"), [(700, False), (1 << 22, False), pytest.param(5000, True, marks=pytest.mark.slow)]
)
def test_flipped_bytes(monkeypatch: pytest.MonkeyPatch, block: int, judge: bool) -> None:
    """Bits, bytes, runs of bytes lost, doubled and swapped, in text and in what is compressed."""
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    chance = random.Random(block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    came = 0
    for number in range(1000 if judge else FLIPS // 2):
        content = bytearray(sources()[number % 3].encode())
        if number % 4 == 0:
            content = bytearray(gzip.compress(bytes(content)))
        for _ in range(chance.choice((1, 1, 3, 30))):
            place, length = chance.randrange(len(content)), chance.choice((1, 1, 4, 50))
            content[place : place + length] = chance.choice(
                (
                    b"",
                    bytes([content[min(place, len(content) - 1)] ^ 1 << chance.randrange(8)]),
                    chance.randbytes(length),
                    content[place : place + length] * 2,
                    chance.choice((b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"9" * 30, b"null", b"\xff")),
                )
            )
            if not content:
                break
        came += read_or_refused(bytes(content), judge or number % 40 == 0)
    assert came > FLIPS / 4
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_BYTES


def changed(value: Any, name: str, new: Any, chance: random.Random) -> Any:
    """Some of the fields of a name are something else now."""
    if isinstance(value, dict):
        return {
            key: new if key == name and chance.random() < 0.3 else changed(inner, name, new, chance)
            for key, inner in value.items()
        }
    return [changed(inner, name, new, chance) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("field", FIELDS)
def test_a_value_of_another_type_in_any_field_gets_a_report(field: str) -> None:
    content = changed(json.loads(sources()[FIELDS.index(field) % 3]), field, {"": [-1]}, random.Random(1))
    assert read_or_refused(json.dumps(content).encode(), judge=True) in (True, False)


@settings(max_examples=200)
@given(st.sampled_from(FIELDS), ANY, st.integers(0, 2), st.randoms(use_true_random=False))
def test_any_value_in_any_field(field: str, value: Any, source: int, chance: random.Random) -> None:
    content = changed(json.loads(sources()[source]), field, value, chance)
    assert read_or_refused(json.dumps(content).encode()) in (True, False)


@settings(max_examples=100)
@given(st.lists(st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=8), max_size=6))
def test_any_events(events: list[dict[str, Any]]) -> None:
    assert read_or_refused(json.dumps({"traceEvents": events}).encode()) in (True, False)


@settings(max_examples=50)
@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    assert not read_or_refused(content)
    assert not read_or_refused(b'{"traceEvents": [' + content)


def test_text_without_end_is_refused_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MOST_BESIDE", 1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for beginning in (b'{"a": "', b'{"traceEvents": [{"a": "', b'{"traceEvents": [' + b"[" * 2_000_000, b"[[[", b""):
        for filling in (b"\0", b"a", b"[", b'{"a":'):
            assert not read_or_refused(gzip.compress(beginning + filling * (8 << 20), compresslevel=1))
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < MOST_BYTES
