"""Nodes of a job on one machine, where each launcher takes the others' processes for somebody else's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import replace

from ..recording.host import HostRecording, HostSample, JobSample
from ..recording.nodes import Node

_APART_NS = 2_000_000_000
"""Between two samples of one moment, at most: each monitor takes one every half a second, or on a starved machine every
other second."""


def host_of(node: Node, nodes: Sequence[Node]) -> HostRecording:
    """The node's samples, in which the processes of the whole job are the job's."""
    beside = [other for other in nodes if other is not node and other.machine_id == node.machine_id]
    if not beside:
        return node.host
    pids = {process.header.pid for other in beside for process in other.recording.processes}
    samples = node.host.samples
    for other in beside:
        theirs = sorted(other.host.samples, key=lambda sample: sample.monotonic_ns)
        times = [sample.monotonic_ns for sample in theirs]
        samples = tuple(_joined(sample, theirs, times, pids) for sample in samples)
    return replace(node.host, samples=samples)


def _joined(
    sample: HostSample, theirs: Sequence[HostSample], times: Sequence[int], pids: Collection[int]
) -> HostSample:
    """A sample with the other launcher's processes of the same time."""
    if sample.neighbours is not None:
        top = tuple(process for process in sample.neighbours.top if process.pid not in pids)
        sample = replace(sample, neighbours=replace(sample.neighbours, top=top))
    at = bisect_left(times, sample.monotonic_ns)
    near = min(
        theirs[max(0, at - 1) : at + 1], key=lambda one: abs(one.monotonic_ns - sample.monotonic_ns), default=None
    )
    if near is None or near.job is None or abs(near.monotonic_ns - sample.monotonic_ns) > _APART_NS:
        return sample
    return replace(
        sample,
        job=None if sample.job is None else _sum(sample.job, near.job),
        job_gpu_pids=tuple(sorted({*sample.job_gpu_pids, *near.job_gpu_pids})),
        monitor_cpus=sample.monitor_cpus + near.monitor_cpus,
    )


def _apart_ns(one: HostSample, other: HostSample) -> int:
    return abs(one.monotonic_ns - other.monotonic_ns)


def _sum(mine: JobSample, theirs: JobSample) -> JobSample:
    """How long threads waited for a CPU stays that of our own."""
    return replace(mine, cpus=mine.cpus + theirs.cpus, rss_bytes=mine.rss_bytes + theirs.rss_bytes)
