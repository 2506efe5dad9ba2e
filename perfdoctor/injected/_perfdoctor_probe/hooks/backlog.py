"""How many requests wait in the queue that a thread takes them from.

A thread that serves has its queue in a local variable of some function that is running, or in an attribute of the
object whose method it is: `concurrent.futures` and hand-written loops alike. Only sizes are read. A queue that only
grows is where answers go; one that is seen to shrink is where requests come from.
"""

import _queue
import sys

_FRAMES = 40
_ATTRIBUTES = 30
"""Of one object."""


class Backlog:
    """Sizes of the queues seen around measured forwards, since the last record."""

    def __init__(self) -> None:
        self.sizes: "dict[int, list[int]]" = {}  # id -> [last, sum, looks, times it had shrunk]

    def look(self, depth: int) -> None:
        """Read the sizes of the queues in the callers' frames, from `depth` frames up."""
        for queue in _queues(sys._getframe(depth)):
            size = queue.qsize()
            known = self.sizes.get(id(queue))
            if known is None:
                self.sizes[id(queue)] = [size, size, 1, 0]
                continue
            known[3] += size < known[0]
            known[0] = size
            known[1] += size
            known[2] += 1

    def mean(self) -> "float | None":
        """Requests that waited, in the queue that shrank most often; None when there was no such queue."""
        shrunk = [known for known in self.sizes.values() if known[3]]
        if not shrunk:
            return None
        _, total, looks, _ = max(shrunk, key=lambda known: known[3])
        return total / looks


def _queues(frame) -> list:
    kinds = _kinds()
    found = []
    for _ in range(_FRAMES):
        if frame is None:
            break
        for value in list(frame.f_locals.values()):
            # By type: asking an object for its class may run the job's code.
            if issubclass(type(value), kinds):
                found.append(value)
        owner = frame.f_locals.get("self")
        held = getattr(owner, "__dict__", None) if owner is not None else None
        if type(held) is dict and len(held) <= _ATTRIBUTES:
            found += [value for value in list(held.values()) if issubclass(type(value), kinds)]
        frame = frame.f_back
    return list({id(queue): queue for queue in found}.values())


def _kinds() -> tuple:
    """The standard library's queues; `queue` itself is not imported for it."""
    module = sys.modules.get("queue")
    made = getattr(module, "Queue", None)
    return (_queue.SimpleQueue, made) if isinstance(made, type) else (_queue.SimpleQueue,)
