"""Runs with threads that share a model."""

from __future__ import annotations

from typing import Any

from samples import ONE_THREAD, healthy, step, with_

from perfdoctor.evidence.model import (
    BusyThread,
    Evidence,
    LockWait,
    LockWaits,
    Missing,
    Parts,
    Pause,
    RequestTiming,
    Site,
)
from perfdoctor.recording.timings import PassWays


def serving(**changes: Any) -> Evidence:
    """Four threads that call one small network all the time: 1 ms each, for 0.15 ms of work."""
    elsewhere = {name: value for name, value in changes.items() if "__" in name or name in ("step", "ops", "memory")}
    return with_(
        healthy(),
        **{
            "step": step(Parts(forward=1.0, other=0.05), boundary="forward", samples=Missing("no loader"), cpu_ms=0.4),
            "ops": Missing("training runs on another thread"),
            "loaders": (),
            "concurrency": with_(
                ONE_THREAD,
                **{
                    "threads": 4,
                    "shared": True,
                    "forwards": 8_000,
                    "overlapped_share": 0.99,
                    "in_flight": 3.9,
                    "wall_ms": 1.0,
                    "measured": 1_000,
                    "cpu_ms": 0.4,
                    "least_cpu_ms": 0.15,
                    "blocked_share": 0.4,
                    "delay_share": 0.1,
                    "occupied_share": 3.9,
                    "site": Site("serve.py", 17, "answer"),
                    "timing": RequestTiming(4, 16, 16, 0.05, 0.07, 1, 0.05, 0.05, 5),
                    **{name: value for name, value in changes.items() if name not in elsewhere},
                },
            ),
            **elsewhere,
        },
    )


def behind_a_lock(**changes: Any) -> Evidence:
    """The same threads, one at a time."""
    return serving(
        **{
            "overlapped_share": 0.0,
            "in_flight": 1.0,
            "wall_ms": 1.0,
            "measured": 0,
            "cpu_ms": 0.98,
            "least_cpu_ms": 0.9,
            "blocked_share": 0.0,
            "delay_share": 0.0,
            "occupied_share": 0.95,
            "waiters": 3.0,
            "timing": RequestTiming(4, 16, 16, 0.6, 0.8, 1, 0.6, 0.6, 5),
            "step": step(Parts(forward=1.0, other=3.0), boundary="forward", samples=Missing("no loader")),
            **changes,
        }
    )


def with_teams(**changes: Any) -> Evidence:
    """Four threads with large operators and four intra-op threads each, on four CPUs."""
    return serving(
        **{
            "wall_ms": 20.0,
            "cpu_ms": 8.0,
            "least_cpu_ms": 7.5,
            "blocked_share": 0.3,
            "timing": RequestTiming(4, 6, 6, 7.0, 27.0, 4, 15.0, 9.0, 5),
            "threads__intra_op": 4,
            "step": step(Parts(forward=20.0, other=0.1), boundary="forward", samples=Missing("no loader")),
            **changes,
        }
    )


def graphs_in_threads(**changes: Any) -> Evidence:
    """Threads that take turns, in evaluation mode, with gradients on."""
    return serving(
        **{
            "overlapped_share": 0.1,
            "measured": 50,
            "eval_with_grad": 8_000,
            "eval_with_grad_share": 1.0,
            "blocked_share": 0.0,
        }
        | changes
    )


def actors_behind_a_lock(**changes: Any) -> Evidence:
    """A training loop whose two actors wait for the lock that it holds, and for one another: 20 ms a step, for half of
    which the loop waits for their rollouts, with one of two CPUs idle."""
    wait = LockWait(Site("train.py", 61, "act"), Site("train.py", 107, "update"), "self.learner.lock", False, 0.9)
    return with_(
        healthy(),
        **{
            "step": step(Parts(forward=4.0, backward=5.0, optimizer=1.0, other=10.0)),
            "machine__affinity_cpus": 2,
            "host__job_cpus": 1.1,
            "host__idle_cpus": 0.9,
            "host__others_cpus": 0.0,
            "lock_waits": LockWaits(120, 0.5, (wait,)),
            "concurrency": with_(ONE_THREAD, threads=3, shared=True, forwards=2_000),
            **changes,
        },
    )


def handing_over(alone_ms: float = 8.0) -> Evidence:
    """A forward pass with a pool of threads; forward and backward take 10 ms with it."""
    return with_(healthy(), ops__ways=PassWays(10.0, (("no pool", alone_ms),)))


def polling(cpus: float = 0.2, idle: float = 0.0, **changes: Any) -> Evidence:
    """A thread that asks a queue without end, beside training on two CPUs: 24 ms a step."""
    busy = BusyThread(Site("journal.py", 42, "run"), cpus, 0.95)
    return with_(
        healthy(),
        **{
            "machine__affinity_cpus": 2,
            "host__job_cpus": 2.0 - idle,
            "host__idle_cpus": idle,
            "host__others_cpus": 0.0,
            "threads__intra_op": 2,
            "lock_waits": LockWaits(120, 0.0, (), (busy,)),
            **changes,
        },
    )


COLLECT_LINE = Site("server.py", 80, "collect")


def pausing(awaited: float = 0.45, **changes: Any) -> Evidence:
    """A server of a policy beside training, whose batches never fill: it waits for more until its 3 ms are over, and
    the loop for its rollouts."""
    pause = Pause(COLLECT_LINE, 40, 3.1, awaited, 0.0)
    return actors_behind_a_lock(lock_waits=LockWaits(120, 0.7, (), pauses=(with_(pause, **changes),)))
