"""What slows the steps on a CUDA device the longer the job runs: its clock, and a cache of memory that is cut up.

Judged by recordings made by hand: nothing here was met on a GPU that grew too hot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ..recording.host import HostSample
from ..recording.model import ProcessRecording
from . import gpus
from .model import Slowing
from .steady import Selection
from .thirds import thirds

_DRIVER_CALL_MS = (0.1, 1.0)
"""One cudaMalloc or cudaFree with its synchronisation; from public traces, not measured here."""
_SLOWED = 0.5
"""Of the last third's readings, in which the driver says that it slows the GPU for heat or lack of power. A clock that
falls without that is one of a GPU with less to do, or at its usual power limit."""


def lower_gpu_clock(samples: Sequence[HostSample], inside: Sequence[HostSample], late_ms: float) -> Slowing | None:
    """Of the GPUs that the job uses; what they take longer is of the share of time in which they are busy."""
    used = gpus.in_use(samples, inside)
    readings = [gpu for sample in inside for gpu in sample.gpus or () if gpu.index in used]
    known = [one for one in readings if one.sm_clock_mhz is not None and one.throttle_reasons is not None]
    clocks = thirds(float(one.sm_clock_mhz or 0) for one in known)
    late = known[-(len(known) // 3) :]
    if clocks is None or clocks[1] >= clocks[0]:
        return None
    if sum(1 for one in late if (one.throttle_reasons or 0) & gpus.SLOWED) < _SLOWED * len(late):
        return None
    rates = [one.utilisation for one in late if one.utilisation is not None]
    busy = sum(rates) / len(rates) if rates else 1.0
    grown_ms = busy * late_ms * (1 - clocks[1] / clocks[0])
    return Slowing("gpu-clock", *clocks, grown_ms, beside=_ends([one.temperature_c for one in known]))


def fragmentation(process: ProcessRecording, steps: Selection, growth_ms: float) -> Slowing | None:
    """The driver is asked for memory more and more often while more and more of what is reserved is in no use."""
    inside = [sample for sample in process.samples if sample.step >= steps.first and sample.cuda is not None]
    calls, unused = [], []
    for one, other in pairwise(inside):
        if one.cuda is None or other.cuda is None or other.step <= one.step:
            continue
        asked = other.cuda.device_allocs - one.cuda.device_allocs + other.cuda.alloc_retries - one.cuda.alloc_retries
        calls.append(asked / (other.step - one.step))
        unused.append(float(other.cuda.reserved_bytes - other.cuda.allocated_bytes))
    per_step, beside = thirds(calls), thirds(unused)
    if per_step is None or beside is None or per_step[1] <= per_step[0] or beside[1] <= beside[0]:
        return None
    # What is asked for is given back as well.
    least_ms, most_ms = (2 * (per_step[1] - per_step[0]) * ms for ms in _DRIVER_CALL_MS)
    return Slowing("cuda-fragmentation", *per_step, min(most_ms, growth_ms), min(least_ms, growth_ms), beside)


def _ends(values: Sequence[int | None]) -> tuple[float, float] | None:
    """Means of the first and the last third, whatever lies between."""
    known = [float(value) for value in values if value is not None]
    third = len(known) // 3
    return (sum(known[:third]) / third, sum(known[-third:]) / third) if third else None
