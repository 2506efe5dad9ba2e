"""Evidence from traces, built by hand: host and device side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from samples import empty, step, with_

from perfdoctor.evidence.model import (
    Activity,
    Called,
    Collectives,
    CopyUse,
    Evidence,
    Idle,
    IdleTime,
    KernelUse,
    Missing,
    OptimizerUse,
    Parts,
    Peaks,
    Products,
    Site,
)

AT = Site("train.py", 42, "main")
STEP_MS = 100.0
ONE_RANK = Missing("the trace is of one rank", "give the traces of all ranks")
A100 = Peaks(19.5, 156, 312, 1555, "data sheet")
TALK = Collectives(
    per_step=8.0,
    ms=20.0,
    exposed_ms=15.0,
    transport_ms=ONE_RANK,
    waiting_ms=ONE_RANK,
    late=ONE_RANK,
    names=("allreduce",),
)
LOOP = OptimizerUse(kernels=480.0, listed=0.0, host_ms=12.0, idle_ms=8.0)


def traced(idle: Mapping[Idle, float] | None = None, **changes: Any) -> Evidence:
    """A step of 100 ms that keeps its device busy but for what is said."""
    causes = {Idle.QUEUED: 1.0} if idle is None else idle
    seen = Activity(
        device="NVIDIA A100-SXM4-40GB",
        devices=1,
        steps=10,
        window_ms=10 * STEP_MS,
        step_ms=STEP_MS,
        busy_ms=STEP_MS - sum(causes.values()),
        computing_ms=STEP_MS - sum(causes.values()) - 2.0,
        copying_ms=2.0,
        idle=tuple(IdleTime(cause, ms, AT) for cause, ms in causes.items()),
        input_ms=causes.get(Idle.INPUT, 0.0),
        workers=False,
        copies=CopyUse(ms=2.0, exposed_ms=1.0, pageable_ms=0.0, pageable_exposed_ms=0.0, bytes=1e6),
        collectives=None,
        allocator=None,
        syncs=Called("cudaStreamSynchronize", 1.0, 5.0),
        launches=1000.0,
        late_share=0.1,
        layouts_ms=0.0,
        products=(Products("tf32", 60.0),),
        optimizer=OptimizerUse(kernels=12.0, listed=12.0, host_ms=2.0, idle_ms=0.0),
        products_ms=60.0,
        elementwise_ms=20.0,
        kernels=(KernelUse("ampere_sgemm_128x64_nn", 30.0, 50.0, "aten::mm", "Linear_3", "float32", 1e11),),
        peaks=A100,
        inflation_ms=5.0,
        unlaunched=0,
    )
    parts = Parts(input_wait=causes.get(Idle.INPUT, 0.0), forward=30.0, backward=40.0, optimizer=5.0)
    parts = with_(parts, other=STEP_MS - parts.total)
    run = with_(empty(), step=step(parts, boundary="profiler", count=10), activity=seen, job__traced=True)
    return with_(run, **changes) if changes else run
