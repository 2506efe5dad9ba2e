"""The counters window, per step."""

from __future__ import annotations

from ..recording.model import ProcessRecording
from .model import Counters, Missing
from .model.counters import NOT_COUNTED

_ON_CPU = Missing("nothing runs on a CUDA device")
_NO_MEMORY = Missing("this torch cannot profile memory quietly")
_NOT_COMPILED = Missing("the job does not use torch.compile")


def counters(process: ProcessRecording) -> Counters | Missing:
    """Counts per step of the window."""
    window = process.counters
    if window is None:
        return NOT_COUNTED
    if window.missing:
        return Missing(f"the counters window could not open: {window.missing}")
    steps = max(1, window.steps)

    def on_device(*kinds: str) -> float | Missing:
        return (
            sum(n for kind, n in window.device.items() if kind.startswith(kinds)) / steps if window.device else _ON_CPU
        )

    def allocated(total: int | None) -> float | Missing:
        return _NO_MEMORY if total is None else total / steps

    return Counters(
        first_step=window.first,
        steps=steps,
        aten_ops=window.aten / steps,
        calls=tuple(sorted((name, count / steps) for name, count in window.calls.items())),
        syncs=window.syncs / steps,
        conversions=window.conversions / steps,
        copies=window.copies / steps,
        flops=window.flops / steps,
        allocations=allocated(window.allocations),
        allocated_bytes=allocated(window.allocated_bytes),
        kernels=on_device("kernels"),
        host_to_device=on_device("Memcpy HtoD"),
        device_to_host=on_device("Memcpy DtoH"),
        losses=window.losses,
        graphs=_NOT_COMPILED if window.graphs is None else window.graphs,
        graph_breaks=_NOT_COMPILED if window.graph_breaks is None else window.graph_breaks,
    )
