from __future__ import annotations

from dataclasses import replace

import pytest

from perfdoctor.evidence.host import build_host, build_monitor_cpus, samples_between
from perfdoctor.evidence.model import Helper, Host, Missing, Neighbour
from perfdoctor.recording.base import Site
from perfdoctor.recording.host import (
    CpuSample,
    GpuProcess,
    GpuSample,
    HostSample,
    JobSample,
    NeighbourProcess,
    NeighbourSample,
    OwnProcess,
    Throttling,
)
from perfdoctor.recording.process import Started

S = 1_000_000_000
JOB = JobSample(cpus=1.5, rss_bytes=100, run_ns=900, run_delay_ns=100)
GPU = GpuSample(0, 0.5, 1 << 30, 1410, 0, ())


def _sample(end_s: float, length_s: float = 1.0) -> HostSample:
    return HostSample(
        monotonic_ns=int(end_s * S),
        interval_ns=int(length_s * S),
        job=JOB,
        cpus=CpuSample(busy=2.0, idle=1.5, iowait=0.5, steal=0.0),
        throttling=Throttling("/g", 10, 0, 0.0),
        pressure_share=0.1,
        memory_pressure_share=0.0,
        memory_available_bytes=1000,
        swap_in_bytes=0,
        neighbours=None,
        gpus=(),
        job_gpu_pids=(),
        monitor_cpus=0.1,
    )


def _host(samples: list[HostSample], start_s: float = 0.0, end_s: float = 100.0) -> Host:
    host = build_host(samples, int(start_s * S), int(end_s * S))
    assert isinstance(host, Host)
    return host


def test_what_is_neither_the_jobs_nor_ours_is_the_others() -> None:
    host = _host([_sample(1), _sample(2)])
    assert host.samples == 2
    assert host.job_cpus == pytest.approx(1.5)
    assert host.others_cpus == pytest.approx(0.4)
    assert host.idle_cpus == pytest.approx(2.0)
    assert host.job_run_delay_share == pytest.approx(0.1)


def test_tick_errors_make_no_negative_neighbour() -> None:
    busy = replace(_sample(1), cpus=CpuSample(1.4, 0.5, 0.0, 0.0))
    assert _host([busy, busy]).others_cpus == 0.0


def test_means_are_weighted_by_time() -> None:
    idle = replace(_sample(4, 3.0), job=replace(JOB, cpus=0.0))
    assert _host([_sample(1), idle]).job_cpus == pytest.approx(1.5 / 4)


def test_only_samples_inside_the_span_count() -> None:
    loud = replace(_sample(1), job=replace(JOB, cpus=8.5))
    host = _host([loud, _sample(2), _sample(3), loud], start_s=1.0, end_s=3.0)
    assert host.samples == 2
    assert host.job_cpus == pytest.approx(1.5)


def test_a_short_span_uses_the_samples_that_overlap_it() -> None:
    samples = [_sample(end) for end in (1, 2, 3, 4)]
    assert _host(samples, start_s=1.5, end_s=2.5).samples == 2
    assert _host(samples, start_s=0.9, end_s=2.5).samples == 3  # one lies inside, which is too few
    assert [s.monotonic_ns for s in samples_between(samples, int(1.2 * S), int(1.3 * S))] == [2 * S]


def test_no_sample_in_the_span_is_missing_with_a_remedy() -> None:
    host = build_host([_sample(1)], 5 * S, 6 * S)
    assert isinstance(host, Missing)
    assert "--steps" in host.remedy
    assert isinstance(build_host([], 0, S), Missing)


def test_steal_is_a_share_of_all_cpu_time() -> None:
    stolen = replace(_sample(1), cpus=CpuSample(2.0, 1.0, 0.0, 1.0))
    assert _host([stolen, stolen]).steal_share == pytest.approx(0.25)


def test_throttled_periods_are_summed() -> None:
    throttled = replace(_sample(2), throttling=Throttling("/g", 10, 5, 0.1))
    assert _host([_sample(1), throttled]).throttled_share == pytest.approx(0.25)


def test_a_group_without_a_quota_was_not_throttled() -> None:
    free = replace(_sample(1), throttling=Throttling("/g", 0, 0, 0.0))
    assert _host([free, free]).throttled_share == 0.0


def test_what_no_sample_saw_is_missing_with_a_reason() -> None:
    blind = replace(
        _sample(1),
        job=replace(JOB, run_ns=None, run_delay_ns=None),
        throttling=None,
        pressure_share=None,
        gpus=None,
    )
    host = _host([blind, blind])
    for value in (host.job_run_delay_share, host.throttled_share, host.pressure_share, host.gpu_utilisation):
        assert isinstance(value, Missing)
        assert value.reason


def test_without_cpu_times_or_memory_there_is_no_host() -> None:
    for blind in (
        replace(_sample(1), cpus=None),
        replace(_sample(1), job=None),
        replace(_sample(1), memory_available_bytes=None),
    ):
        assert isinstance(build_host([blind, blind], 0, 9 * S), Missing)


def test_memory_is_the_worst_and_swap_the_sum() -> None:
    tight = replace(_sample(2), memory_available_bytes=10, swap_in_bytes=4096, job=replace(JOB, rss_bytes=900))
    host = _host([_sample(1), tight, replace(_sample(3), swap_in_bytes=4096)])
    assert host.memory_available_bytes == 10
    assert host.swap_in_bytes == 8192.0
    assert host.peak_job_bytes == 900


def test_neighbours_are_averaged_over_the_scans_largest_first() -> None:
    def scan(end_s: float, *top: NeighbourProcess) -> HostSample:
        return replace(_sample(end_s), neighbours=NeighbourSample(2 * S, top))

    small, big = NeighbourProcess(5, "a", "me", 0.5), NeighbourProcess(6, "b", "me", 1.0)
    host = _host([_sample(1), scan(2, small, big), _sample(3), scan(4, big), scan(99, small)], end_s=4.0)
    assert [(n.pid, n.cpus) for n in host.neighbours] == [(6, 1.0), (5, 0.25)]


def test_processes_of_one_program_count_together() -> None:
    def scanned(end_s: float, *pids: int) -> HostSample:
        top = tuple(NeighbourProcess(pid, "python -m pytest", "ann", 0.25) for pid in pids)
        return replace(_sample(end_s), neighbours=NeighbourSample(2 * S, top))

    host = _host([scanned(2, 5, 6), scanned(4, 6, 7)], end_s=4.0)
    assert host.neighbours == (Neighbour(6, "python -m pytest", "ann", 0.5, 3),)


def test_a_gpu_is_the_jobs_when_one_of_its_processes_is_on_it() -> None:
    ours = replace(GPU, index=1, utilisation=0.8, processes=(GpuProcess(7, 1, None),))
    sample = replace(_sample(1), gpus=(GPU, ours), job_gpu_pids=(7,))
    assert _host([sample, sample]).gpu_utilisation == pytest.approx(0.8)


def test_without_pids_a_gpu_is_the_jobs_when_its_memory_grew() -> None:
    before = replace(_sample(1), gpus=(GPU, replace(GPU, index=1)))
    grown = replace(GPU, index=1, utilisation=0.8, memory_used_bytes=2 << 30)
    after = [replace(_sample(end), gpus=(GPU, grown)) for end in (2, 3)]
    assert _host([before, *after], start_s=1.0).gpu_utilisation == pytest.approx(0.8)


def test_a_gpu_that_the_job_does_not_touch_is_not_its_own() -> None:
    sample = replace(_sample(1), gpus=(GPU,))
    assert _host([sample, sample]).gpu_utilisation == Missing("the job was seen on no GPU")
    assert _host([_sample(1), _sample(2)]).gpu_utilisation == Missing("no GPU")


def test_our_own_cpu_is_a_mean_over_the_span() -> None:
    assert build_monitor_cpus([_sample(1), _sample(2)], 0, 9 * S) == pytest.approx(0.1)
    assert isinstance(build_monitor_cpus([], 0, 9 * S), Missing)


def test_building_twice_gives_the_same() -> None:
    samples = [_sample(2), _sample(1)]
    assert _host(samples) == _host(list(reversed(samples)))


def test_helpers_are_what_never_slept_or_worked_much_and_neither_trains_nor_makes_batches() -> None:
    rank, helper, worker = (OwnProcess(pid, "python", 0.75) for pid in (1, 2, 3))
    once = OwnProcess(4, "sh", 0.9)
    samples = [replace(_sample(end), job=replace(JOB, busy=(rank, helper, worker))) for end in range(1, 6)]
    samples[2] = replace(samples[2], job=replace(JOB, busy=(rank, once)))
    host = build_host(samples, 0, 100 * S, training={1, 3})
    assert isinstance(host, Host)
    assert host.helpers == (Helper(2, "python", 0.75),)
    start, does = Site("train.py", 40, "main"), Site("feed.py", 7, "feed")
    host = build_host(samples, 0, 100 * S, training={1, 3}, started=[Started(2, start, does), Started(3, start, does)])
    assert isinstance(host, Host) and host.helpers == (Helper(2, "python", 0.75, True, start, does),)
    samples[3] = replace(samples[3], job=JOB)
    host = build_host(samples, 0, 100 * S, training={1, 3})
    assert isinstance(host, Host) and host.helpers == (Helper(2, "python", pytest.approx(0.45), False),)
    bursts = [replace(_sample(end), job=replace(JOB, busy=(OwnProcess(2, "python", 0.3, False),))) for end in (1, 2)]
    for sleeping, told in ((1, 0), (0, 1)):
        host = build_host([*bursts, *[_sample(3 + more) for more in range(2 * sleeping)]], 0, 100 * S)
        assert isinstance(host, Host) and len(host.helpers) == told
