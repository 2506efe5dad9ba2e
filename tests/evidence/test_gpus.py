from __future__ import annotations

from dataclasses import replace

import pytest

from perfdoctor.evidence import gpus
from perfdoctor.evidence.model import GpuStranger, Missing
from perfdoctor.recording.host import GpuProcess, GpuSample, HostSample

S = 1_000_000_000
BUSY = GpuSample(0, 0.8, 4 << 30, 1400, 0, (GpuProcess(7, 3 << 30),))
IDLE = GpuSample(1, 0.0, 500 << 20, 300, 1, ())


def _sample(*readings: GpuSample, at: int = 1, ours: tuple[int, ...] = (7,)) -> HostSample:
    return HostSample(
        wall_ns=0,
        monotonic_ns=at * S,
        interval_ns=S,
        job=None,
        cpus=None,
        throttling=None,
        pressure_avg10=None,
        memory_available_bytes=None,
        swap_in_bytes=None,
        oom_kills=None,
        neighbours=None,
        gpus=readings,
        job_gpu_pids=ours,
        own_cpus=None,
        sample_cpu_ns=None,
    )


def test_a_gpu_that_nobody_touches_is_idle() -> None:
    samples = [_sample(BUSY, IDLE)]
    assert gpus.in_use(samples, samples) == {0}
    assert gpus.idle(samples, samples) == (1,)


@pytest.mark.parametrize(
    "other",
    [
        replace(IDLE, utilisation=0.3),
        replace(IDLE, memory_used_bytes=8 << 30),
        replace(IDLE, processes=(GpuProcess(9, None),)),
    ],
)
def test_one_that_somebody_uses_in_any_sample_is_not(other: GpuSample) -> None:
    samples = [_sample(BUSY, IDLE), _sample(BUSY, other, at=2)]
    assert gpus.idle(samples, samples) == ()


def test_strangers_are_the_others_on_the_jobs_gpus() -> None:
    shared = replace(BUSY, processes=(*BUSY.processes, GpuProcess(99, 2 << 30)))
    elsewhere = replace(IDLE, processes=(GpuProcess(55, 1 << 30),))
    samples = [_sample(shared, elsewhere)]
    assert gpus.strangers(samples, samples) == (GpuStranger(99, 0, 2 << 30),)


def test_pids_of_the_host_make_no_strangers_in_a_container() -> None:
    samples = [_sample(replace(BUSY, memory_used_bytes=0), ours=()), _sample(BUSY, at=2, ours=())]
    assert gpus.in_use(samples, samples) == {0}
    assert gpus.strangers(samples, samples) == ()


def test_held_down_clocks_are_told_from_the_power_cap() -> None:
    hot = replace(BUSY, throttle_reasons=0x40, sm_clock_mhz=700)
    capped = replace(BUSY, throttle_reasons=0x4)
    samples = [_sample(hot), _sample(capped, at=2)]
    assert gpus.throttling(samples, samples, {0: 1400}) == (0.5, 0.5)
    times, clock = gpus.throttling(samples, samples, {})
    assert times == 0.5
    assert isinstance(clock, Missing)


def test_without_gpus_nothing_is_said() -> None:
    samples = [_sample()]
    times, _ = gpus.throttling(samples, samples, {})
    assert isinstance(times, Missing)
    assert gpus.idle(samples, samples) == ()
