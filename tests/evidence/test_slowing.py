"""What grows outside of the job along with its steps, told from what jumps or comes and goes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from recordings import START_NS, recorded, sample, selected, steps

from perfdoctor.evidence import slowing, trend
from perfdoctor.evidence.model import Slowing, Trend
from perfdoctor.recording.host import GpuProcess, GpuSample, HostSample, JobSample, Throttling

N = 240
WALL_US = [10_000 + 50 * step for step in range(N)]
RAMP = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]


def _built(directory: Path, samples: Sequence[HostSample] = (), *records: dict[str, Any]) -> tuple[Slowing, ...]:
    """Steps from 10 ms to 22, over 3.8 seconds."""
    recording = recorded(directory, steps(WALL_US), *records)
    chosen = selected(recording)
    found = trend.trend(chosen)
    assert isinstance(found, Trend)
    return slowing.build(recording, samples, chosen, found)


def _over(**series: Sequence[Any]) -> list[HostSample]:
    """Samples over the steps, evenly."""
    count = len(next(iter(series.values())))
    length = sum(WALL_US) * 1000 // (count + 1)
    quiet: dict[str, Any] = {
        "interval_ns": length // 2,
        "job": JobSample(cpus=2.0, rss_bytes=1 << 30, run_ns=1, run_delay_ns=0),
        "cpus": None,
        "throttling": None,
        "pressure_share": None,
        "memory_pressure_share": None,
        "memory_available_bytes": None,
        "swap_in_bytes": None,
        "neighbours": None,
        "gpus": None,
        "job_gpu_pids": (),
        "monitor_cpus": 0.0,
    }
    return [
        HostSample(
            START_NS + length * (number + 1), **quiet | {name: values[number] for name, values in series.items()}
        )
        for number in range(count)
    ]


def test_pressure_counts_while_pages_come_from_swap(tmp_path: Path) -> None:
    (found,) = _built(tmp_path, _over(memory_pressure_share=RAMP, swap_in_bytes=[1 << 20] * 6))
    assert found.kind == "swapping" and (found.early, found.late) == (pytest.approx(0.05), pytest.approx(0.45))
    assert found.grown_ms == pytest.approx(0.45 * 20 - 0.05 * 12, rel=0.05)
    (folder := tmp_path / "reading").mkdir()
    assert _built(folder, _over(memory_pressure_share=RAMP, swap_in_bytes=[0] * 6)) == ()


@pytest.mark.parametrize(
    "pressure",
    [[0.3] * 6, [0.0, 0.0, 0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.6, 0.1, 0.2], RAMP[::-1], RAMP[:5]],
    ids=["even", "jumps", "comes and goes", "falls", "few"],
)
def test_what_does_not_grow_with_the_steps_is_not_told(tmp_path: Path, pressure: list[float]) -> None:
    samples = _over(memory_pressure_share=pressure, swap_in_bytes=[1 << 20] * len(pressure))
    assert _built(tmp_path, samples) == ()


def test_throttling_is_of_the_cpus_that_the_job_keeps_busy(tmp_path: Path) -> None:
    length_s = sum(WALL_US) / 7 / 2 / 1e6
    stopped = [Throttling("/job", 10, 5, 2 * share * length_s) for share in RAMP]
    (found,) = _built(tmp_path, _over(throttling=stopped))
    assert found.kind == "throttled" and found.late == pytest.approx(0.45, rel=0.01)


def test_a_clock_that_falls_makes_steps_longer_by_as_much(tmp_path: Path) -> None:
    (found,) = _built(tmp_path, _over(clock_mhz=[4000, 4000, 3000, 3000, 2000, 2000]))
    assert found.kind == "lower-clock" and found.grown_ms == pytest.approx(20 * (1 - 2000 / 4000), rel=0.05)


def test_page_faults_are_told_by_the_system_time_that_grows_with_them(tmp_path: Path) -> None:
    totals = [(0, 0)]
    for number in range(8):
        totals.append((totals[-1][0] + 1_000 * number, totals[-1][1] + 20_000 * number))
    samples = [sample(20 + 20 * n, minflt=faults, stime_us=us) for n, (faults, us) in enumerate(totals)]
    (found,) = _built(tmp_path, (), *samples)
    assert found.kind == "page-faults" and found.early == pytest.approx(25.0, rel=0.3)
    assert found.late - found.early == pytest.approx(300.0, rel=0.2)
    assert found.grown_ms == pytest.approx(6.0, rel=0.2)


# ---------------------------------------------------------------------------------------------------------
# On a device: recordings made by hand, not run on a GPU

HOT, IDLE, POWER_CAP = 0x20, 0x1, 0x4
"""nvmlClocksEventReasons: software thermal slowdown, nothing to do, and the power limit of full load."""


def _on_gpu(clocks: Sequence[int], reasons: int, busy: float = 0.9) -> list[HostSample]:
    celsius = [60 + 4 * number for number in range(len(clocks))]
    boards = [
        (GpuSample(0, busy, 4 << 30, mhz, reasons, (GpuProcess(7, 0, 3 << 30),), warm),)
        for mhz, warm in zip(clocks, celsius, strict=True)
    ]
    return _over(gpus=boards, job_gpu_pids=[(7,)] * len(clocks))


FALLING = [1980, 1900, 1700, 1500, 1300, 1200]


def test_a_gpu_that_its_driver_slows_down_makes_steps_longer_while_it_is_busy(tmp_path: Path) -> None:
    (found,) = _built(tmp_path, _on_gpu(FALLING, HOT))
    assert found.kind == "gpu-clock" and (found.early, found.late) == (1940.0, 1250.0)
    assert found.grown_ms == pytest.approx(0.9 * 20 * (1 - 1250 / 1940), rel=0.05)
    assert found.beside == (62.0, 78.0)


@pytest.mark.parametrize(
    ("clocks", "reasons"),
    [(FALLING, IDLE), (FALLING, POWER_CAP), (FALLING[::-1], HOT), ([1980] * 6 + [1200] * 3, HOT), ([1200] * 6, HOT)],
    ids=["idle", "at its power limit", "rises", "jumps", "even"],
)
def test_a_clock_that_is_low_for_another_reason_is_not_told(tmp_path: Path, clocks: list[int], reasons: int) -> None:
    assert _built(tmp_path, _on_gpu(clocks, reasons)) == ()


def _cached(calls: Sequence[int], unused: Sequence[int]) -> list[dict[str, Any]]:
    """Counters every 20 steps: driver allocations since the last, and bytes reserved beyond the 1 GB in use."""
    total, made = 0, []
    for number, (more, spare) in enumerate(zip(calls, unused, strict=True)):
        total += more
        cuda = {
            "alloc_retries": total // 4,
            "device_allocs": total,
            "peak_allocated_bytes": 1 << 30,
            "peak_reserved_bytes": (1 << 30) + spare,
            "allocated_bytes": 1 << 30,
            "reserved_bytes": (1 << 30) + spare,
        }
        made.append(sample(20 + 20 * number, cuda=cuda))
    return made


def test_a_cache_that_is_cut_up_more_and_more_asks_the_driver_more_often(tmp_path: Path) -> None:
    calls, unused = [40 * number for number in range(10)], [number << 28 for number in range(10)]
    (found,) = _built(tmp_path, (), *_cached(calls, unused))
    assert found.kind == "cuda-fragmentation" and found.late > found.early
    grown = found.late - found.early
    assert found.least_ms == pytest.approx(0.2 * grown)
    assert found.grown_ms == pytest.approx(8.0, rel=0.1), "as much as there is to explain between the thirds, at most"
    assert found.beside is not None and found.beside[1] > found.beside[0]


@pytest.mark.parametrize(
    ("calls", "unused"),
    [
        ([40] + [0] * 9, [1 << 30] * 10),
        ([40 * number for number in range(10)], [1 << 30] * 10),
        ([0] * 10, [number << 28 for number in range(10)]),
    ],
    ids=["a cache that fills once", "more in use", "asks for nothing"],
)
def test_a_cache_that_does_not_cost_more_and_more_is_not_told(
    tmp_path: Path, calls: list[int], unused: list[int]
) -> None:
    assert _built(tmp_path, (), *_cached(calls, unused)) == ()
