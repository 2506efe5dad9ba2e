"""The sampler on real processes. Waits are for a number of samples, never for a time."""

from __future__ import annotations

import itertools
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from job_script import running_job
from nvml_fake import FakeNvml

from perfdoctor.evidence.host import build_host
from perfdoctor.evidence.model import Host
from perfdoctor.injected._perfdoctor_probe import records
from perfdoctor.monitor import sources
from perfdoctor.monitor.gpu import NvmlGpus
from perfdoctor.monitor.sampler import HostSampler
from perfdoctor.recording.host import HostSample
from perfdoctor.recording.monitor import read_host_file

pytestmark = pytest.mark.e2e

INTERVAL_S = 0.02
PATIENCE_S = 60.0


def _wait_until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_a_job_is_sampled_from_start_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "SCAN_INTERVAL_S", 0.0)
    monkeypatch.setattr(sources, "MOST_OWN_CPUS", 1.0)
    file = tmp_path / "host.jsonl"
    before_ns = time.perf_counter_ns()
    with running_job() as job:
        sampler = HostSampler(job.pid, file, INTERVAL_S, gpus=NvmlGpus(FakeNvml(driver=False)))
        sampler.start()
        _wait_until(lambda: len(_lines(file)) >= 2)
        job.do("spin", 0.2)
        _wait_until(lambda: len(_lines(file)) >= 4)
        sampler.stop()
    recording = read_host_file(file)
    assert recording.notes == ()
    assert not {fault.source for fault in recording.faults} & {"job", "cpus", "memory", "sampler", "neighbours"}
    times = [sample.monotonic_ns for sample in recording.samples]
    assert before_ns < times[0]
    assert times == sorted(times)
    assert times[-1] < time.perf_counter_ns()
    spans = [(s.monotonic_ns - s.interval_ns, s.monotonic_ns) for s in recording.samples]
    assert all(end == start for (_, end), (start, _) in itertools.pairwise(spans))
    used = [s.job.cpus * s.interval_ns / 1e9 for s in recording.samples if s.job]
    assert sum(used) == pytest.approx(0.2, abs=0.05)
    assert any(s.neighbours is not None for s in recording.samples)
    assert sampler.latest is not None
    assert recording.samples[-1] == sampler.latest
    host = build_host(recording.samples, before_ns, time.perf_counter_ns())
    assert isinstance(host, Host)
    assert host.job_cpus > 0
    assert host.peak_job_bytes > 0


def test_the_file_is_for_its_owner_only_and_only_grows(tmp_path: Path) -> None:
    file = tmp_path / "host.jsonl"
    with running_job() as job:
        sampler = HostSampler(job.pid, file, INTERVAL_S)
        sampler.start()
        _wait_until(lambda: len(_lines(file)) >= 1)
        first = _lines(file)[0]
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        sampler.stop()
    assert _lines(file)[0] == first
    assert file.read_text().endswith("\n")


def test_a_source_that_fails_is_null_and_noted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(root: Path) -> int:
        raise ValueError("no MemAvailable")

    monkeypatch.setattr(sources, "read_available_bytes", broken)
    monkeypatch.setattr(sources, "MOST_OWN_CPUS", 1.0)
    file = tmp_path / "host.jsonl"
    with running_job() as job:
        sampler = HostSampler(job.pid, file, INTERVAL_S)
        sampler.start()
        _wait_until(lambda: len(_lines(file)) >= 5)
        sampler.stop()
    recording = read_host_file(file)
    assert [f.error for f in recording.faults if f.source == "memory"] == ["ValueError: no MemAvailable"]
    assert all(sample.memory_available_bytes is None for sample in recording.samples)
    assert all(sample.job is not None for sample in recording.samples)


def test_without_proc_the_launcher_hears_nothing(tmp_path: Path) -> None:
    file = tmp_path / "host.jsonl"
    sampler = HostSampler(os.getpid(), file, INTERVAL_S, root=tmp_path)
    sampler.start()
    _wait_until(lambda: sampler.latest is not None)
    sampler.stop()
    recording = read_host_file(file)
    assert {"cpus", "swap", "memory", "pressure"} <= {fault.source for fault in recording.faults}
    assert recording.samples[0].cpus is None
    assert recording.samples[0].throttling is None


def test_a_directory_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    with running_job() as job:
        sampler = HostSampler(job.pid, tmp_path / "gone/host.jsonl", INTERVAL_S)
        sampler.start()
        _wait_until(lambda: sampler.latest is not None)
        sampler.stop()


def test_a_fault_of_the_sampler_itself_is_written_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("perfdoctor.monitor.sampler.Sources", broken)
    file = tmp_path / "host.jsonl"
    sampler = HostSampler(os.getpid(), file, INTERVAL_S)
    sampler.start()
    sampler.stop()
    assert [fault.source for fault in read_host_file(file).faults] == ["sampler"]
    assert capfd.readouterr().err == ""


def test_a_job_that_is_gone_already_is_sampled_as_nothing(tmp_path: Path) -> None:
    with running_job() as job:
        pass
    file = tmp_path / "host.jsonl"
    sampler = HostSampler(job.pid, file, INTERVAL_S)
    sampler.start()
    sampler.stop()
    (sample,) = read_host_file(file).samples
    assert sample.job is not None
    assert (sample.job.cpus, sample.job.rss_bytes) == (0, 0)


def test_stopping_twice_or_before_starting_is_harmless(tmp_path: Path) -> None:
    sampler = HostSampler(os.getpid(), tmp_path / "host.jsonl", INTERVAL_S)
    sampler.stop()
    sampler.start()
    sampler.stop()
    sampler.stop()
    assert "perfdoctor-monitor" not in {thread.name for thread in threading.enumerate()}


def test_the_jobs_processes_on_a_gpu_are_told_from_others(tmp_path: Path) -> None:
    file = tmp_path / "host.jsonl"
    nvml = FakeNvml()
    with running_job() as job:
        nvml.pids = [job.pid, 1]
        sampler = HostSampler(job.pid, file, INTERVAL_S, gpus=NvmlGpus(nvml))
        sampler.start()
        _wait_until(lambda: sampler.latest is not None)
        sampler.stop()
    sample = read_host_file(file).samples[0]
    assert sample.job_gpu_pids == (job.pid,)
    assert sample.gpus is not None
    assert {process.pid for process in sample.gpus[0].processes} == {job.pid, 1}
    assert not nvml.open


def test_costly_samples_become_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    class Clock(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            return len(pauses) >= 3

    monkeypatch.setattr(sources.Sources, "read", _costly_read(sources.Sources.read))
    sampler = HostSampler(os.getpid(), tmp_path / "host.jsonl", INTERVAL_S)
    monkeypatch.setattr(sampler, "_stopping", Clock())
    sampler.start()
    sampler.stop()
    assert pauses == [INTERVAL_S, 100.0, 100.0]


def _costly_read(read: Callable[..., HostSample]) -> Callable[..., object]:
    def costly(self: sources.Sources, others: Collection[int]) -> HostSample:
        reading = read(self, others)
        self.cost_ns = 1_000_000_000
        return reading

    return costly


def test_every_line_is_one_json_object_with_a_kind(tmp_path: Path) -> None:
    file = tmp_path / "host.jsonl"
    sampler = HostSampler(os.getpid(), file, INTERVAL_S)
    sampler.start()
    sampler.stop()
    first, *others = [json.loads(line) for line in _lines(file)]
    assert first == {"k": "format", "version": records.VERSION}
    assert {record["k"] for record in others} <= {"host", "fault"}
    assert others
