"""Traces written by hand: two steps of a small job on one GPU, in both schemas of the profiler."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]

HOST = 4242
ORIGIN = {"old": 1_623_142_623_460_016, "new": 3_743_411_222_487.063}
"""Whole microseconds since 1970, and fractions since the file's own base time."""


def span(category: str, name: str, start: float, length: float, tid: object = HOST, **arguments: object) -> Event:
    """An event as the new schema writes it; its time is microseconds since the trace began."""
    event: Event = {"ph": "X", "cat": category, "name": name, "pid": HOST, "tid": tid, "ts": start, "dur": length}
    return {**event, "args": arguments} if arguments else event


def new_schema() -> dict[str, Any]:
    """Steps of 1,000 us: a batch is waited for, a product is launched and runs, a copy, the optimizer."""
    events: list[Event] = [
        {"name": "process_name", "ph": "M", "ts": 0, "pid": HOST, "tid": 0, "args": {"name": "python"}},
        {"name": "process_labels", "ph": "M", "ts": 0, "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}},
    ]
    for step in range(2):
        at, number = 1000.0 * step, 10 * step
        typed = {"Input type": ["float", "c10::BFloat16", "Scalar"], "Input Dims": [[64, 256], [256, 512], []]}
        events += [
            span("user_annotation", f"ProfilerStep#{step + 3}", at, 990.5, **{"External id": number + 1}),
            span("gpu_user_annotation", f"ProfilerStep#{step + 3}", at + 300, 500, tid=7),
            span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 5, 200),
            span("python_function", "train.py(41): main", at, 980, **{"Python id": number}),
            span("python_function", f"<built-in method numel of Tensor object at 0x7fdc681d09{step}0>", at + 8, 0.5),
            span(
                *("cpu_op", "aten::mm", at + 250, 60),
                **{"External id": number + 2, "Sequence number": number, **typed},
            ),
            span(
                "cuda_runtime", "cudaLaunchKernel", at + 260, 20, correlation=number + 5, **{"External id": number + 2}
            ),
            span(
                *("kernel", "ampere_sgemm_128x64_nn", at + 300, 400, 7),
                **{"device": 0, "stream": 7, "correlation": number + 5, "External id": number + 2},
            ),
            {"ph": "s", "id": number + 5, "pid": HOST, "tid": HOST, "ts": at + 260, "cat": "ac2g", "name": "ac2g"},
            {"ph": "f", "id": number + 5, "pid": 0, "tid": 7, "ts": at + 300, "cat": "ac2g", "name": "ac2g", "bp": "e"},
            span("cuda_runtime", "cudaMemcpyAsync", at + 320, 9, correlation=number + 6),
            span(
                "gpu_memcpy",
                "Memcpy HtoD (Pinned -> Device)",
                at + 710,
                20,
                7,
                device=0,
                stream=7,
                correlation=number + 6,
                bytes=4096,
            ),
            span("gpu_memset", "Memset (Device)", at + 735, 0, 7, device=0, stream=7, correlation=number + 7, bytes=64),
            span(
                "kernel",
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                at + 740,
                30,
                20,
                device=0,
                stream=20,
                correlation=number + 8,
                **{"Collective name": "allreduce", "In msg nelems": 131072},
            ),
            span("user_annotation", "Optimizer.step#SGD.step", at + 800, 100),
            span("overhead", "Lazy Function Loading", at + 810, 10, -1),
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "s": "t",
                "name": "[memory]",
                "pid": HOST,
                "tid": HOST,
                "ts": at + 300,
                "args": {"Bytes": 512},
            },
        ]
    events.append(span("Trace", "PyTorch Profiler (0)", -1, 2000, "PyTorch Profiler"))
    for event in events:
        event["ts"] += ORIGIN["new"]
    return {
        "schemaVersion": 1,
        "deviceProperties": [
            {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 85_031_714_816, "numSms": 108}
        ],
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "with_stack": 1,
        "record_shapes": 1,
        "traceEvents": events,
        "traceName": "rank3.json",
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_767_189_312_000_000_000,
    }


OLD_NAMES = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "ac2g": "async",
}


def old_schema() -> dict[str, Any]:
    """The same job in the words of PyTorch 1.8: whole microseconds, streams as text, annotations among operators."""
    events = []
    for event in new_schema()["traceEvents"]:
        category = event.get("cat", "")
        if category in ("python_function", "gpu_user_annotation", "overhead"):
            continue
        event["ts"] = round(event["ts"] - ORIGIN["new"]) + ORIGIN["old"]
        if category:
            event["cat"] = OLD_NAMES.get(category, category)
        if "dur" in event:
            event["dur"] = round(event["dur"])
        on_device = category in ("kernel", "gpu_memcpy", "gpu_memset") or event["ph"] == "f"
        event["tid"] = f"stream {event['tid']}" if on_device else str(event["tid"])
        if on_device:
            event["pid"] = 0
        if "External id" in event.get("args", {}) and category != "cpu_op":
            event["args"]["external id"] = event["args"].pop("External id")
        if category == "cpu_op":
            event["args"]["Call stack"] = "torch/nn/functional.py(1690): linear;train.py(41): main"
        events.append(event)
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Tesla V100"}], "traceEvents": events}


def as_the_profiler_writes(trace: dict[str, Any]) -> str:
    """Several lines an event, as torch.profiler does; `json.dumps` alone is what filters of traces write."""
    return json.dumps(trace, indent=2)
