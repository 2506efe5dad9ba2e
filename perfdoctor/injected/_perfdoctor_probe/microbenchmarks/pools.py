"""Work that a forward pass hands to threads of a pool, done by the thread that asks for it: each thread of a pool has
an OpenMP team of its own, and all of them share Python's lock."""

import concurrent.futures.thread as pools
from concurrent.futures import Future
from threading import get_ident

from .passes import always


def alive() -> bool:
    """Whether a `ThreadPoolExecutor` has threads."""
    return bool(getattr(pools, "_threads_queues", ()))


def without(handed: list):
    """A way to make passes without pools; `handed` gets an element for each call that would have been handed over."""
    kind, asking = pools.ThreadPoolExecutor, get_ident()
    original = kind.submit

    def submit(self, function, /, *args, **kwargs):
        if get_ident() != asking:
            return original(self, function, *args, **kwargs)
        handed.append(1)
        done: Future = Future()
        try:
            done.set_result(function(*args, **kwargs))
        except BaseException as error:
            done.set_exception(error)
        return done

    return always(lambda: setattr(kind, "submit", submit), lambda: setattr(kind, "submit", original))
