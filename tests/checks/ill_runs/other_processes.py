"""Runs with neighbours, quotas, shared GPUs."""

from __future__ import annotations

from typing import Any

from samples import healthy, on_gpu, step, with_

from perfdoctor.evidence.model import CallSite, Evidence, GpuProcess, Helper, Neighbour, Parts, Site


def crowded(delay_ms: float = 8.0, others: float = 1.0, **changes: Any) -> Evidence:
    """One of two CPUs is kept busy by somebody, and the training thread waits for so long a step."""
    return with_(
        healthy(),
        **{
            "machine__affinity_cpus": 2,
            "machine__logical_cpus": 2,
            "step__run_delay_ms": delay_ms,
            "step__cpu_ms": 15.0,
            "host__job_cpus": 1.0,
            "host__others_cpus": others,
            "host__idle_cpus": max(0.0, 1.0 - others),
            "host__job_run_delay_share": delay_ms / (delay_ms + 24.0),
            "host__neighbours": (Neighbour(4711, "stress-ng", "bob", others),),
            **changes,
        },
    )


def polled(delay_ms: float = 8.0, threads: int = 2, **changes: Any) -> Evidence:
    """One of two CPUs is kept busy by a process of the job itself."""
    return crowded(
        delay_ms,
        others=0.0,
        **{
            "host__job_cpus": 2.0,
            "host__idle_cpus": 0.0,
            "host__neighbours": (),
            "host__helpers": (Helper(5120, "python", 0.9),),
            "threads__intra_op": threads,
            **changes,
        },
    )


def throttled(periods: float = 0.6, delay_ms: float = 8.0, **changes: Any) -> Evidence:
    return with_(
        healthy(),
        **{
            "machine__quota_cpus": 1.0,
            "step__run_delay_ms": delay_ms,
            "host__throttled_share": periods,
            "host__throttled_time_share": 0.5,
            "host__job_run_delay_share": delay_ms / (delay_ms + 24.0),
            **changes,
        },
    )


def shared_gpu(utilisation: float = 0.95, busy_ms: float = 12.0, **changes: Any) -> Evidence:
    return on_gpu(
        **{
            "host__gpu_utilisation": utilisation,
            "ops__device_busy_ms": busy_ms,
            "host__gpu_other_processes": (GpuProcess(990, 0, 8 << 30),),
            **changes,
        }
    )


_PARTS = Parts(input_wait=0.3, forward=8.0, backward=10.0, optimizer=1.5, other=5.2)


def pool_for_each_batch(ms: float = 4.0, calls: float = 2.0) -> Evidence:
    """Started and ended in each step of 25 ms."""
    call = CallSite("process", Site("train.py", 40, "load_batch"), calls, ms)
    return with_(healthy(), step=step(_PARTS), processes=(call,))


def asks_environments(ms: float = 4.0, calls: float = 16.0) -> Evidence:
    """Eight processes, in each step of 25 ms."""
    there = CallSite("message", Site("train.py", 60, "ask"), calls / 2, 0.7 * ms)
    back = CallSite("message", Site("train.py", 61, "ask"), calls / 2, 0.3 * ms)
    return with_(healthy(), step=step(_PARTS), messages=(there, back))


def asks_a_program(ms: float = 4.0) -> Evidence:
    """In each step, how full the memory is."""
    call = CallSite("program", Site("train.py", 52, "main"), 1.0, ms)
    return with_(healthy(), step=step(_PARTS), programs=(call,))
