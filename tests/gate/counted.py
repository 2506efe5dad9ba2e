"""What the counters window saw of a job on the CPU."""

from __future__ import annotations

from perfdoctor.evidence.model import Counters, Missing

NONE = Missing("nothing runs on a CUDA device")
COUNTED = Counters(
    first_step=10, steps=4, aten_ops=690.0, calls=(("aten::item", 6.0),), syncs=6.0, conversions=30.0, copies=33.0,
    flops=1e8, allocations=95.0, allocated_bytes=5e6, kernels=NONE, host_to_device=NONE, device_to_host=NONE,
    losses=(2.3,), graphs=0, graph_breaks=0,
)  # fmt: skip
