from __future__ import annotations

import os
from pathlib import Path

import pytest

from perfdoctor.monitor import system
from perfdoctor.monitor.processes import TICKS_PER_SECOND
from perfdoctor.monitor.system import CpuClock, SwapClock, read_available_bytes, read_clock_mhz, read_pressure


def _write_cpu_ticks(root: Path, *lines: str) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text("\n".join(("cpu  9 9 9 9 9 9 9 9 0 0", *lines, "intr 5 0 0")))


@pytest.fixture
def one_second_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr(system.time, "perf_counter_ns", lambda: next(seconds))


@pytest.mark.usefixtures("one_second_a_call")
def test_cpu_use_is_in_cores_of_the_cpus_the_job_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    second = TICKS_PER_SECOND
    _write_cpu_ticks(tmp_path, *(f"cpu{n} 0 0 0 0 0 0 0 0 0 0" for n in range(3)))
    clock = CpuClock(tmp_path)
    _write_cpu_ticks(
        tmp_path,
        f"cpu0 {second // 2} 0 {second // 4} 0 0 {second // 4} 0 0 0 0",
        f"cpu1 {second} 0 0 0 0 0 0 0 0 0",
        f"cpu2 0 0 0 {second // 2} {second // 4} 0 0 {second // 4} 0 0",
    )
    reading = clock.read()
    assert (reading.busy, reading.idle, reading.iowait, reading.steal) == (1.0, 0.5, 0.25, 0.25)


@pytest.mark.usefixtures("one_second_a_call")
def test_a_counter_that_goes_back_is_no_negative_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    _write_cpu_ticks(tmp_path, "cpu0 5 0 0 5 50 0 0 0 0 0")
    clock = CpuClock(tmp_path)
    _write_cpu_ticks(tmp_path, "cpu0 5 0 0 5 40 0 0 0 0 0")
    assert clock.read().iowait == 0.0


def test_this_machines_cpu_time_adds_up() -> None:
    clock = CpuClock()
    while (reading := clock.read()).busy + reading.idle == 0:
        pass
    assert min(reading.busy, reading.idle, reading.iowait, reading.steal) >= 0


def test_swapped_in_pages_become_bytes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/vmstat").write_text("pgfault 1\npswpin 10\npswpout 3\n")
    clock = SwapClock(tmp_path)
    (tmp_path / "proc/vmstat").write_text("pgfault 1\npswpin 13\npswpout 3\n")
    assert clock.read() == 3 * system.PAGE_BYTES
    assert clock.read() == 0


def test_available_memory_is_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:     64 kB\n")
    assert read_available_bytes(tmp_path) == 64 * 1024
    assert read_available_bytes() > 0


def test_pressure_is_a_share(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("some avg10=12.50 avg60=1.00 avg300=0.00 total=5\nfull avg10=0.00\n")
    assert read_pressure(tmp_path / "cpu") == 0.125


def test_another_format_of_pressure_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cpu").write_text("nothing\n")
    with pytest.raises(ValueError, match="avg10"):
        read_pressure(tmp_path / "cpu")


def test_the_clock_is_that_of_the_cpus_the_job_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2})
    assert read_clock_mhz(tmp_path) is None
    for cpu, khz in enumerate((3_000_000, 800_000, 2_000_000)):
        (folder := tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq").mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n")
    assert read_clock_mhz(tmp_path) == 2500.0
