"""What slows the steps from outside, the longer the job runs: each by its own course over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from ..recording.host import HostSample
from ..recording.model import ProcessRecording
from .host import samples_between
from .model import Slowing, Trend
from .slowing_device import fragmentation, lower_gpu_clock
from .steady import Selection
from .thirds import thirds


def build(
    process: ProcessRecording, samples: Sequence[HostSample], steps: Selection, trend: Trend
) -> tuple[Slowing, ...]:
    """The largest first."""
    if trend.late_ms <= trend.early_ms:
        return ()
    inside = samples_between(samples, steps.start_ns, steps.end_ns)
    # Thirds lie apart by two thirds of the whole growth.
    early_ms, late_ms = (trend.early_ms + share * (trend.late_ms - trend.early_ms) for share in (1 / 6, 5 / 6))

    def of_shares(early: float, late: float) -> float:
        return min(1.0, late) * late_ms - min(1.0, early) * early_ms

    def of_clock(early: float, late: float) -> float:
        return late_ms * (1 - late / early) if early > 0 else 0.0

    found = [
        _slowing("swapping", [_swapping(one) for one in inside], of_shares),
        _slowing("throttled", [_throttled(one) for one in inside], of_shares),
        _slowing("lower-clock", [one.clock_mhz for one in inside], of_clock),
        _page_faults(process, steps),
        lower_gpu_clock(samples, inside, late_ms),
        fragmentation(process, steps, late_ms - early_ms),
    ]
    return tuple(sorted((one for one in found if one is not None), key=lambda one: -one.grown_ms))


def _swapping(sample: HostSample) -> float | None:
    """Pressure counts only while pages come back from swap: reading files makes some too."""
    if sample.memory_pressure_share is None or sample.swap_in_bytes is None:
        return None
    return sample.memory_pressure_share if sample.swap_in_bytes else 0.0


def _throttled(sample: HostSample) -> float | None:
    """Of the time of the CPUs that the job keeps busy: it is summed over them."""
    if sample.throttling is None or sample.job is None:
        return None
    return sample.throttling.throttled_seconds / max(1.0, sample.job.cpus) / (sample.interval_ns / 1e9)


def _page_faults(process: ProcessRecording, steps: Selection) -> Slowing | None:
    """System time per step that grows with the page faults: memory that is returned to the OS and faulted back in, in
    more and smaller pieces."""
    inside = [sample for sample in process.samples if sample.step >= steps.first]
    pairs = [(one, other) for one, other in pairwise(inside) if other.step > one.step]
    system = thirds((other.stime_us - one.stime_us) / 1000 / (other.step - one.step) for one, other in pairs)
    faults = thirds((other.minflt - one.minflt) / (other.step - one.step) for one, other in pairs)
    if system is None or faults is None or not faults[1] > faults[0] or not system[1] > system[0]:
        return None
    return Slowing("page-faults", *faults, grown_ms=system[1] - system[0])


def _slowing(kind: str, readings: Sequence[float | None], cost: Callable[[float, float], float]) -> Slowing | None:
    ends = thirds(reading for reading in readings if reading is not None)
    grown_ms = cost(*ends) if ends is not None else 0.0
    return Slowing(kind, *ends, grown_ms) if ends is not None and grown_ms > 0 else None  # type: ignore[arg-type]
