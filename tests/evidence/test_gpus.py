from __future__ import annotations

from dataclasses import replace

import pytest

from perfdoctor.evidence import gpus
from perfdoctor.evidence.model import Missing
from perfdoctor.recording.host import GpuProcess, GpuSample, HostSample
from perfdoctor.recording.machine import Gpu

S = 1_000_000_000
CARD = Gpu(0, "Board", 80 << 30, "550", max_sm_clock_mhz=1400)
BUSY = GpuSample(0, 0.8, 4 << 30, 1400, 0, (GpuProcess(7, 0, 3 << 30),))
IDLE = GpuSample(1, 0.0, 500 << 20, 300, 1, ())


def _sample(*readings: GpuSample, at: int = 1, ours: tuple[int, ...] = (7,)) -> HostSample:
    return HostSample(
        monotonic_ns=at * S,
        interval_ns=S,
        job=None,
        cpus=None,
        throttling=None,
        pressure_share=None,
        memory_pressure_share=None,
        memory_available_bytes=None,
        swap_in_bytes=None,
        neighbours=None,
        gpus=readings,
        job_gpu_pids=ours,
        monitor_cpus=0.0,
    )


def test_a_gpu_that_nobody_touches_is_idle() -> None:
    samples = [_sample(BUSY, IDLE)]
    assert gpus.in_use(samples, samples) == {0}
    assert gpus.idle(samples, gpus.in_use(samples, samples)) == (1,)


@pytest.mark.parametrize(
    "other",
    [
        replace(IDLE, utilisation=0.3),
        replace(IDLE, memory_used_bytes=8 << 30),
        replace(IDLE, processes=(GpuProcess(9, 1, None),)),
    ],
)
def test_one_that_somebody_uses_in_any_sample_is_not(other: GpuSample) -> None:
    samples = [_sample(BUSY, IDLE), _sample(BUSY, other, at=2)]
    assert gpus.idle(samples, gpus.in_use(samples, samples)) == ()


def test_processes_of_others_are_told_on_the_jobs_gpus_only() -> None:
    shared = replace(BUSY, processes=(*BUSY.processes, GpuProcess(99, 0, 2 << 30)))
    elsewhere = replace(IDLE, processes=(GpuProcess(55, 1, 1 << 30),))
    samples = [_sample(shared, elsewhere)]
    assert gpus.other_processes(samples, frozenset([0])) == (GpuProcess(99, 0, 2 << 30),)


def test_pids_of_the_host_are_no_other_processes_in_a_container() -> None:
    samples = [_sample(replace(BUSY, memory_used_bytes=0), ours=()), _sample(BUSY, at=2, ours=())]
    assert gpus.in_use(samples, samples) == {0}
    assert gpus.other_processes(samples, frozenset([0])) == ()


def test_held_down_clocks_are_told_from_the_power_cap() -> None:
    hot = replace(BUSY, throttle_reasons=0x40, sm_clock_mhz=700)
    capped = replace(BUSY, throttle_reasons=0x4)
    samples = [_sample(hot), _sample(capped, at=2)]
    assert gpus.throttling(samples, frozenset([0]), [CARD]) == (0.5, 0.5)
    times, clock = gpus.throttling(samples, frozenset([0]), [])
    assert times == 0.5
    assert isinstance(clock, Missing)


def test_without_gpus_nothing_is_said() -> None:
    samples = [_sample()]
    times, _ = gpus.throttling(samples, frozenset(), [])
    assert isinstance(times, Missing)
    assert gpus.idle(samples, gpus.in_use(samples, samples)) == ()
