"""A trace as torch.profiler writes it, of a job that waits for data."""

from __future__ import annotations

from typing import Any

from written_traces import span

STEP = 1000.0


def starving(
    steps: int = 6, wait_us: float = 500.0, products: int = 2, rank: int = 0, ranks: int = 1
) -> dict[str, Any]:
    """Steps of 1,000 us: the loader, then so many products, launched one after another, and the optimizer."""
    events = []
    for step in range(steps):
        at, number = STEP * step, 100 * step
        events += [
            span("user_annotation", f"ProfilerStep#{step + 3}", at, STEP),
            span("python_function", "train.py(41): main", at, STEP),
            span("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, wait_us),
            span("user_annotation", "Optimizer.step#SGD.step", at + 900, 50),
        ]
        for product in range(products):
            start, one = at + 505 + 20 * product, number + product
            events += [
                span("cpu_op", "aten::mm", start, 10, **{"External id": one, "Input Dims": [[64, 64], [64, 64]]}),
                span("cuda_runtime", "cudaLaunchKernel", start + 2, 5, correlation=one, **{"External id": one}),
                span(
                    *("kernel", "volta_sgemm_128x32_nt", at + 520 + 480 / products * product, 475 / products, 7),
                    **{"device": 0, "stream": 7, "correlation": one, "External id": one},
                ),
            ]
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 1 << 35, "numSms": 80}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "with_stack": 1,
        "record_shapes": 1,
        "traceEvents": events,
    }
