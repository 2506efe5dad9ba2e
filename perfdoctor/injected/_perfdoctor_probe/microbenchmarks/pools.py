"""Work that a forward pass hands to threads of a pool, done by the thread that asks for it, once the pool is gone.

Each thread of a pool has an OpenMP team of its own, and as long as there are more threads than CPUs libgomp's wait for
each other asleep, those of the training thread too: a program with such a pool ran 1.42 times as fast without it, and
no faster where the pool was only passed by. So the pools are ended, which is nothing for a job that goes on.
"""

import concurrent.futures.thread as pools
import contextlib
import time
from concurrent.futures import Future

from ..remedies.base import living

_JOIN_S = 1.0
"""For all threads to end; a task of theirs may last."""


def alive() -> bool:
    """Whether a `ThreadPoolExecutor` has threads."""
    return bool(getattr(pools, "_threads_queues", ()))


def end() -> bool:
    """End all of them; whether their threads have ended."""
    threads = []
    for pool in living((pools.ThreadPoolExecutor,)):
        threads += pool._threads
        pool.shutdown(wait=False)
    until = time.monotonic() + _JOIN_S
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


@contextlib.contextmanager
def made_by_the_caller(handed: list):
    """What is submitted to a pool is done at once; `handed` gets an element for each call."""
    kind = pools.ThreadPoolExecutor
    original = kind.submit

    def submit(self, function, /, *args, **kwargs):
        handed.append(1)
        done: Future = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done

    kind.submit = submit
    try:
        yield
    finally:
        kind.submit = original
