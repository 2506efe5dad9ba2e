"""What tracing Python's allocations (`tracemalloc`) costs: the job's own passes with it and without.

Ending it throws away what it has traced, so this is for a job that is over.
"""

import _tracemalloc


def timings(passes) -> dict:
    """Of a `PassMicrobenchmark`; nothing where nobody traces."""
    if not _tracemalloc.is_tracing():
        return {}
    frames = _tracemalloc.get_traceback_limit()
    try:
        return {"tracing": passes.without({"off": (_tracemalloc.stop, lambda: _tracemalloc.start(frames))})}
    finally:
        if not _tracemalloc.is_tracing():
            _tracemalloc.start(frames)
