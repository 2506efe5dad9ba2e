"""What is read from a trace in either schema."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from written_traces import HOST, as_the_profiler_writes, new_schema, old_schema, span

from perfdoctor.errors import PerfdoctorError
from perfdoctor.traces import text
from perfdoctor.traces.model import NOT_SAID, HostSpans, Kind, Spans, Trace
from perfdoctor.traces.reader import read

Written = Callable[[Any], Trace]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write_and_read(content: Any) -> Trace:
        path = tmp_path / "trace.json"
        if not isinstance(content, bytes):
            content = (content if isinstance(content, str) else json.dumps(content)).encode()
        path.write_bytes(content)
        return read(path)

    return write_and_read


def named(trace: Trace, spans: Spans) -> list[str]:
    return [trace.named(int(index)) for index in spans.name]


def same(one: Trace, other: Trace) -> bool:
    """All that is in them, but for the files' names and what was left out."""

    def table(trace: Trace, which: str) -> list[Any]:
        spans = getattr(trace, which)
        texts = ("name", "dtype", "shapes", "stack", "collective")
        return [
            [trace.named(int(value)) for value in getattr(spans, column)]
            if column in texts
            else getattr(spans, column).round(3).tolist()
            for column in type(spans).__dataclass_fields__
        ]

    return all(table(one, which) == table(other, which) for which in ("operators", "calls", "work", "marks", "frames"))


def test_the_new_schema_is_read(written: Written) -> None:
    trace = written(new_schema())
    assert (trace.writer, trace.rank, trace.world_size, trace.platform) == ("torch.profiler", 3, 8, "cuda")
    assert (trace.with_stack, trace.with_shapes, trace.cut, trace.problems) == (True, True, False, ())
    (device,) = trace.devices
    assert (device.name, device.memory_bytes, device.multiprocessors) == ("NVIDIA A100-SXM4-80GB", 85_031_714_816, 108)
    operator = trace.operators
    assert named(trace, operator) == ["aten::mm"] * 2
    assert operator.start_us.round(3).tolist() == [250, 1250]
    assert (operator.end_us - operator.start_us).round(3).tolist() == [60, 60]
    assert operator.external.tolist() == [2, 12]
    assert operator.sequence.tolist() == [0, 10]
    assert operator.thread.tolist() == [HOST, HOST]
    assert trace.named(operator.dtype[0]) == "float32"
    assert trace.named(operator.shapes[0]) == "[64, 256] [256, 512]"
    assert named(trace, trace.frames) == ["train.py(41): main", "<built-in method numel of Tensor object>"] * 2


def test_steps_are_marks_of_the_host_alone(written: Written) -> None:
    trace = written(new_schema())
    assert sum(name.startswith("ProfilerStep#") for name in named(trace, trace.marks)) == 2
    assert len(trace.marks) == 6


def test_work_finds_its_call_by_correlation(written: Written) -> None:
    trace = written(new_schema())
    work = trace.work
    assert work.kind.tolist() == [Kind.KERNEL, Kind.COPY, Kind.SET, Kind.KERNEL] * 2
    asked = [named(trace, trace.calls)[call] if call != NOT_SAID else "" for call in work.call]
    assert asked == ["cudaLaunchKernel", "cudaMemcpyAsync", "", ""] * 2
    assert work.bytes.tolist() == [NOT_SAID, 4096, 64, NOT_SAID] * 2
    assert trace.named(work.collective[3]) == "allreduce"
    assert work.elements.tolist()[3] == 131072
    assert set(zip(work.device.tolist(), work.stream.tolist(), strict=True)) == {(0, 7), (0, 20)}


@pytest.mark.parametrize("flow", ["ac2g", "async_cpu_to_gpu", "async"])
def test_work_without_correlation_finds_its_call_by_the_arrow(written: Written, flow: str) -> None:
    content = new_schema()
    for event in content["traceEvents"]:
        if event.get("cat") == "ac2g":
            event["cat"] = flow
        event.get("args", {}).pop("correlation", None)
    trace = written(content)
    kernels = trace.work.where(trace.work.kind == Kind.KERNEL)
    assert [named(trace, trace.calls)[call] for call in kernels.call[[0, 2]]] == ["cudaLaunchKernel"] * 2
    assert trace.calls.start_us[kernels.call[[0, 2]]].round(3).tolist() == [260, 1260]
    assert set(kernels.call[[1, 3]].tolist()) == {NOT_SAID}


def test_the_old_schema_says_the_same(written: Written) -> None:
    trace = written(old_schema())
    assert (trace.rank, trace.with_stack, trace.with_shapes, trace.platform) == (None, True, True, "cuda")
    assert named(trace, trace.operators) == ["aten::mm"] * 2
    assert trace.named(trace.operators.stack[0]) == "torch/nn/functional.py(1690): linear;train.py(41): main"
    assert sorted(set(named(trace, trace.marks))) == [
        "Optimizer.step#SGD.step",
        "ProfilerStep#3",
        "ProfilerStep#4",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    ]
    assert trace.work.stream.tolist() == [7, 7, 7, 20] * 2
    assert trace.work.external.tolist()[0] == 2
    assert [call != NOT_SAID for call in trace.work.call] == [True, True, False, False] * 2


def test_an_annotation_of_the_user_among_old_operators_is_a_mark(written: Written) -> None:
    content = old_schema()
    start = content["traceEvents"][-1]["ts"]
    content["traceEvents"] += [
        span("Operator", "my forward", start + 3, 5),
        span("Operator", "AddmmBackward", start + 4, 5, **{"Sequence number": 3}),
        span("Operator", "detach_", start + 5, 5, **{"Input Dims": [[32]]}),
    ]
    trace = written(content)
    assert "my forward" in named(trace, trace.marks)
    assert {"AddmmBackward", "detach_"} <= set(named(trace, trace.operators))


@pytest.mark.parametrize(
    ("category", "call", "platform"),
    [
        ("cuda_runtime", "hipLaunchKernel", "rocm"),
        ("cuda_driver", "cuLaunchKernelEx", "cuda"),
        ("xpu_runtime", "urEnqueueKernelLaunch", "xpu"),
        ("privateuse1_runtime", "somethingLaunch", ""),
    ],
)
def test_calls_of_every_device_are_calls(written: Written, category: str, call: str, platform: str) -> None:
    content = new_schema()
    for event in content["traceEvents"]:
        if event.get("cat") == "cuda_runtime":
            event.update(cat=category, name=call)
        elif event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and category == "privateuse1_runtime":
            event["cat"] = "privateuse1_" + event["cat"].removeprefix("gpu_")
    trace = written(content)
    assert trace.platform == platform
    assert named(trace, trace.calls) == [call] * 4
    assert np.bincount(trace.work.kind).tolist() == [4, 2, 2]


@pytest.mark.parametrize(
    ("said", "dtype"),
    [
        (["c10::Half"], "float16"),
        (["long int", "double"], "float64"),
        (["c10::Float8_e4m3fn", "float"], "float8_e4m3fn"),
        (["long int", "Scalar", ""], ""),
        ("unreadable", ""),
    ],
)
def test_the_type_is_that_of_the_first_floating_point_input(written: Written, said: object, dtype: str) -> None:
    trace = written([span("cpu_op", "aten::mm", 1, 2, **{"Input type": said, "Input Dims": [[], [[2], [3]]]})])
    assert trace.named(trace.operators.dtype[0]) == dtype
    assert trace.named(trace.operators.shapes[0]) == "[[2], [3]]"


@pytest.mark.parametrize(
    ("name", "platform"),
    [("AMD Instinct MI300X", "rocm"), ("Intel(R) Data Center GPU Max", "xpu"), ("Tesla V100", "cuda")],
)
def test_without_calls_the_devices_maker_tells_the_platform(written: Written, name: str, platform: str) -> None:
    content = new_schema()
    content["deviceProperties"] = [{"id": 0, "name": name}]
    events = content["traceEvents"]
    content["traceEvents"] = [event for event in events if event.get("cat") != "cuda_runtime"]
    assert written(content).platform == platform
    content["traceEvents"] = [event for event in events if event.get("cat") == "cpu_op"]
    assert written(content).platform == ""


def test_a_trace_of_the_cpu_has_no_platform(written: Written) -> None:
    trace = written([span("cpu_op", "aten::mm", 1, 2)])
    assert (trace.platform, trace.with_shapes, trace.with_stack, len(trace.work)) == ("", False, False, 0)


# ---------------------------------------------------------------------------------------------------------
# However it is written


@pytest.mark.parametrize("write", [as_the_profiler_writes, json.dumps, lambda trace: json.dumps(trace["traceEvents"])])
@pytest.mark.parametrize("block", [64, 300, 4000, 1 << 22])
def test_the_size_of_blocks_changes_nothing(
    written: Written, monkeypatch: pytest.MonkeyPatch, write: Callable[[Any], str], block: int
) -> None:
    whole = written(new_schema())
    monkeypatch.setattr(text, "BLOCK_BYTES", block)
    trace = written(write(new_schema()))
    assert same(trace, whole)
    assert (trace.cut, trace.problems) == (False, ())


@pytest.mark.parametrize("parts", [1, 3])
def test_compressed_text_is_read(tmp_path: Path, written: Written, parts: int) -> None:
    content = json.dumps(new_schema()).encode()
    size = -(-len(content) // parts)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(b"".join(gzip.compress(content[i * size : (i + 1) * size]) for i in range(parts)))
    assert same(read(path), written(content))


def test_facts_may_stand_behind_the_events(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    content = new_schema()
    behind = {"traceEvents": content.pop("traceEvents"), "others": [{"a": [{"b": 1}, {"c": "]"}]}] * 200, **content}
    for block in (200, 1 << 22):
        monkeypatch.setattr(text, "BLOCK_BYTES", block)
        trace = written(behind)
        assert (trace.rank, trace.cut, len(trace.devices), len(trace.operators)) == (3, False, 1, 2)


def test_rows_are_in_order_and_what_is_around_others_comes_first(written: Written) -> None:
    trace = written(
        [span("cpu_op", "inner", 5, 2), span("cpu_op", "outer", 5, 9), span("cpu_op", "before", 1, 1)],
    )
    assert named(trace, trace.operators) == ["before", "outer", "inner"]
    assert trace.operators.start_us.tolist() == [0, 4, 4]
    assert isinstance(trace.frames, HostSpans)


def test_what_is_no_trace_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for content, slug in (
        (b"", "trace-empty-file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1159569\n", "trace-lfs-pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "trace-web-page"),
        (b"PK\x03\x04rest", "trace-archive"),
        (b"\0" * 257 + b"ustar" + b"\0" * 300, "trace-archive"),
        (b'{"schemaVersion": 1}', "not-a-trace"),
        (b"hello", "not-a-trace"),
        (b"[1, 2, 3]", "not-a-trace"),
        (b'{"traceEvents": []}', "trace-without-events"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name"}]}', "trace-without-events"),
        (b'{"traceEvents": [{"ph": "B", "name": "x", "ts": 1}]}', "not-a-trace"),
        (b'{"traceEvents": [{"ph": "X", "cat": "FEE", "name": "x", "ts": 1, "dur": 1}]}', "not-a-trace"),
    ):
        for written in (content, gzip.compress(content)):
            path.write_bytes(written)
            with pytest.raises(PerfdoctorError) as refused:
                read(path)
            assert (refused.value.slug, bool(refused.value.advice)) == (slug, True), content
    with pytest.raises(PerfdoctorError, match="no such file") as missing:
        read(tmp_path / "none.json")
    assert missing.value.slug == "trace-unreadable"
    with pytest.raises(PerfdoctorError) as folder:
        read(tmp_path)
    assert folder.value.slug == "trace-unreadable"
