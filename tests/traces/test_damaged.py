"""Damaged traces: read as far as they go, and what is left out is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from written_traces import as_the_profiler_writes, new_schema, span

from perfdoctor.traces import text
from perfdoctor.traces.model import NOT_SAID, Trace
from perfdoctor.traces.reader import read

LIMIT_64 = 1 << 63


def reading(folder: Path, content: bytes | str | list[Any] | dict[str, Any]) -> Trace:
    path = folder / "trace.json"
    if isinstance(content, dict | list):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read(path)


def many(count: int = 2000) -> list[dict[str, Any]]:
    """Kernels of 5 us, one every 10 us."""
    return [
        span("kernel", f"kernel {number % 7}", 10.0 * number, 5, 7, device=0, stream=7, correlation=number + 1)
        for number in range(count)
    ]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_file_is_read_as_far_as_it_goes(tmp_path: Path, compressed: bool) -> None:
    whole = as_the_profiler_writes({"schemaVersion": 1, "traceEvents": many()}).encode()
    counts = []
    for share in (0.3, 0.6, 0.9):
        if compressed:
            packed = gzip.compress(whole)
            trace = reading(tmp_path, packed[: int(share * len(packed))])
        else:
            trace = reading(tmp_path, whole[: int(share * len(whole))])
        assert (trace.cut, trace.problems) == (True, ())
        counts.append(len(trace.work) / 2000)
    assert counts == pytest.approx([0.3, 0.6, 0.9], abs=0.12)
    assert reading(tmp_path, gzip.compress(whole) if compressed else whole).cut is False


@pytest.mark.parametrize("block", [500, 1 << 22])
def test_one_bad_event_costs_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    events = [json.dumps(event) for event in many(200)]
    events[100] = events[100].replace('"kernel"', "kernel", 1)
    trace = reading(tmp_path, '{"traceEvents": [' + ",\n".join(events) + '], "distributedInfo": {"rank": 2}}')
    assert (len(trace.work), trace.cut, trace.rank) == (199, False, 2)
    assert trace.problems == ("left out: 1 event that cannot be read",)


@pytest.mark.parametrize("block", [500, 1 << 22])
@pytest.mark.parametrize(
    "bad",
    [
        b'"name": "bad \xff\xfe text"',
        b'"name": "bad \x01\x02 text\n"',
        b'"name": "bad \\ud83d text"',
        b'"name": "bad C:\\Users\\me\\unit \\" text"',
        b'"name": "bad", "x": NaN',
        b'"name": "bad", "x": -Infinity',
        b'"name": "bad", "memory bandwidth (GB/s)": inf',
        b'"name": "bad", "memory bandwidth (GB/s)": -nan',
        b'"name": "bad", "tid": 123456789012345678901234567890',
        b'"name": "bad", "tid": [1, {"a": 2}]',
        b'"name": 7',
        b'"name": "bad", "pid": null',
        b'"name": "bad", "list": [{"a": 1}, {"b": "}, {"}]',
    ],
)
def test_odd_text_costs_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, bad: bytes) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    before, after = (b",".join(json.dumps(event).encode() for event in part) for part in (many(9), many(20)[9:]))
    odd = b'{"ph": "X", "cat": "kernel", "ts": 88, "dur": 1, "tid": 7, ' + bad + b"}"
    trace = reading(tmp_path, b'{"traceEvents": [' + b",".join([before, odd, after]) + b"]}")
    assert (len(trace.work), trace.cut, trace.problems) == (21, False, ())
    assert "\n".join(trace.names).encode().isascii() or "�" in "".join(trace.names)


def test_a_comma_behind_the_last_event_costs_nothing(tmp_path: Path) -> None:
    events = ",".join(json.dumps(event) for event in many(5))
    trace = reading(tmp_path, '{"traceEvents": [' + events + ',\n], "distributedInfo": {"rank": 2}}')
    assert (len(trace.work), trace.cut, trace.rank, trace.problems) == (5, False, 2, ())


def test_numbers_beyond_64_bits_are_not_said(tmp_path: Path) -> None:
    for number in (LIMIT_64, -LIMIT_64 - 1, 1 << 200, 1.5, "x", None, [1]):
        trace = reading(
            tmp_path,
            [span("gpu_memcpy", "Memcpy", 1, 2, 7, correlation=number, bytes=number, **{"External id": number})],
        )
        work = trace.work
        assert (work.correlation[0], work.bytes[0], work.external[0]) == (NOT_SAID,) * 3


def test_times_as_text_are_times(tmp_path: Path) -> None:
    event = {**span("cpu_op", "aten::mm", 0, 0), "ts": "10.5", "dur": "3"}
    trace = reading(tmp_path, [event, span("cpu_op", "aten::add", 4, 1)])
    assert (trace.operators.start_us.tolist(), trace.operators.end_us.tolist()) == ([0, 6.5], [1, 9.5])


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"dur": -1}, "of negative length"),
        ({"dur": None}, "without a time or a length"),
        ({"ts": None}, "without a time or a length"),
        ({"ts": 1e400}, "without a time or a length"),
        ({"dur": 9e12}, "of impossible times"),
        ({"ts": 9e15}, "of impossible times"),
        ({"ts": -9e15}, "of impossible times"),
    ],
)
@pytest.mark.parametrize("window", [True, False])
def test_events_of_impossible_times_are_left_out_and_told(
    tmp_path: Path, wrong: dict[str, Any], what: str, window: bool
) -> None:
    events = many()
    events[7].update(wrong)
    if window:
        events.append(span("Trace", "PyTorch Profiler (0)", 0, 20_000))
    trace = reading(tmp_path, events)
    assert (len(trace.work), trace.problems) == (1999, (f"left out: 1 event {what}",))
    assert trace.work.end_us.max() == 19_995


def test_a_few_kernels_that_last_as_long_as_hundreds_of_others_are_left_out(tmp_path: Path) -> None:
    events = many()
    for number in (100, 500, 900):
        events[number]["dur"] = 4000
    trace = reading(tmp_path, events)
    assert (len(trace.work), trace.problems) == (1997, ("left out: 3 events of impossible times",))


def test_long_work_is_possible(tmp_path: Path) -> None:
    """A last synchronisation, kernels of one graph side by side, and a queue that runs things at once."""
    waiting = [*many(20), span("cuda_runtime", "cudaDeviceSynchronize", 195, 5_000_000)]
    assert reading(tmp_path, waiting).problems == ()
    graph = many(20)
    for event in graph:
        event["args"]["correlation"] = 5
    graph[3]["dur"] = 100
    assert reading(tmp_path, graph).problems == ()
    queue = many(200)
    for event in queue[::4]:
        event["dur"] = 55
    assert reading(tmp_path, queue).problems == ()
    other_streams = many(200)
    other_streams[50].update(dur=1000, tid=20)
    other_streams[50]["args"]["stream"] = 20
    assert reading(tmp_path, other_streams).problems == ()


def test_events_written_twice_count_once(tmp_path: Path) -> None:
    content = new_schema()
    once = reading(tmp_path, content)
    content["traceEvents"] *= 2
    twice = reading(tmp_path, content)
    for table in ("operators", "calls", "work", "marks"):
        assert len(getattr(twice, table)) == len(getattr(once, table)) > 0
    alike = [span("cpu_op", "aten::empty", 1, 0), span("python_function", "f.py(1): f", 1, 0)] * 3
    nameless = reading(tmp_path, alike)
    assert (len(nameless.operators), len(nameless.frames), nameless.problems) == (3, 3, ())
    assert twice.problems == ("left out: 20 events that are there twice",)
