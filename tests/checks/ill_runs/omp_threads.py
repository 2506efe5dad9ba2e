"""Runs with too many threads, or too few."""

from __future__ import annotations

from typing import Any

from samples import healthy, step, with_

from perfdoctor.evidence.model import BlasPool, CodeLine, Evidence, Parts, Site, ThreadTiming

POOL_LINE = Site("data.py", 61, "__call__")


def timed_threads(now: int, timings: dict[int, float], cpus: int = 2, **changes: Any) -> Evidence:
    """`now` threads on so many CPUs, and what the largest operators take with 1, 2, ... threads."""
    return with_(
        healthy(),
        **{
            "machine__affinity_cpus": cpus,
            "machine__logical_cpus": cpus,
            "threads__intra_op": now,
            "ops__thread_timings": tuple(ThreadTiming(threads, ms) for threads, ms in timings.items()),
            **changes,
        },
    )


def crowded_ranks(waited_ms: float = 6.0, **changes: Any) -> Evidence:
    """Two ranks of two threads on two CPUs, whose operators were timed while the other rank waited for this one."""
    return timed_threads(
        2,
        {1: 10.0, 2: 9.5},
        **{
            "job__local_ranks": 2,
            "job__world_size": 2,
            "step__run_delay_ms": waited_ms,
            "host__job_run_delay_share": 0.3,
            "host__job_cpus": 1.9,
            "host__others_cpus": 0.0,
            "host__idle_cpus": 0.1,
            **changes,
        },
    )


def pinned_workers(wait_ms: float = 10.0, **changes: Any) -> Evidence:
    return with_(
        healthy(),
        **{
            "step": step(Parts(input_wait=wait_ms, forward=8.0, backward=14.0, optimizer=2.0)),
            "threads__variables": (("OMP_PLACES", "cores"), ("OMP_PROC_BIND", "close")),
            "loader__worker_threads__affinity_cpus": 1,
            "loader__worker_threads__distinct_affinities": 1,
            **changes,
        },
    )


def second_pool(cores: float = 0.9, waits: float = 0.3, **changes: Any) -> Evidence:
    """Two threads of torch's on two CPUs, one of which OpenBLAS's second thread has for so much of the time."""
    return timed_threads(
        2,
        {1: 10.0, 2: 6.0},
        **{
            "ops__pools": (BlasPool("libscipy_openblas64_-32a4b2a6.so", 2, cores),),
            "code_lines": (CodeLine(POOL_LINE, "input_wait", True, 0.5, 0.5),),
            "step__run_delay_ms": 3.0,
            "host__job_run_delay_share": waits,
            "host__job_cpus": 1.9,
            "host__others_cpus": 0.0,
            "host__idle_cpus": 0.1,
            **changes,
        },
    )


def pinned_process(cpus: int = 1, launch: int = 2, idle: float = 0.9, **changes: Any) -> Evidence:
    """A training thread that may run on one of the two CPUs that the job had at its start."""
    return with_(
        timed_threads(1, {1: 10.0}),
        **{
            "threads__affinity_cpus": cpus,
            "threads__launch_affinity_cpus": launch,
            "threads__pinned_at": Site("record.py", 48, "__init__"),
            "host__idle_cpus": idle,
            **changes,
        },
    )
