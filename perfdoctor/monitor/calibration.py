"""How fast this machine is right now at four small things: for plausibility, never for a verdict.

Dividing a job's time by any of them makes it noisier, not quieter: they do not slow down when the job does. But a
baseline from a machine that is 1.4 times faster at everything is worth a word beside its times.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .machine import measure_page_fault_ns

_ROUNDS = 7
_MATRIX = 256
_COPY_BYTES = 8 << 20
"""More than a core's own cache holds."""


def calibrate() -> dict[str, float]:
    """Microseconds of each kernel, the fastest of some rounds; some 100 ms in all, on one thread."""
    import numpy as np

    rng = np.random.default_rng(0)
    matrix = rng.random((_MATRIX, _MATRIX), dtype=np.float32)
    product = np.empty_like(matrix)
    source, target = (np.ones(_COPY_BYTES, dtype=np.uint8) for _ in range(2))
    found = {
        "Python loop": _fastest_us(_python_loop),
        "matmul": _fastest_us(lambda: np.matmul(matrix, matrix, out=product)),
        "memcpy": _fastest_us(lambda: np.copyto(target, source)),
    }
    fault_ns = measure_page_fault_ns()
    if fault_ns is not None:
        found["page touch"] = fault_ns / 1000
    return found


def _python_loop() -> int:
    total = 0
    for number in range(20_000):
        total += number & 3
    return total


def _fastest_us(kernel: Callable[[], object]) -> float:
    """What disturbs only ever adds."""
    kernel()
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter_ns()
        kernel()
        times.append(time.perf_counter_ns() - began)
    return min(times) / 1000
