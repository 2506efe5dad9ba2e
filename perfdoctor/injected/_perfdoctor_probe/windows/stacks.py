"""Stacks as they are sampled, folded into a tree: a node is a line in a file, below the line that called it.

Each node is written once, when it is first met, each sample as the number of its innermost node: 60 bytes for a deep
stack that comes again and again.
"""

import os

from .. import records
from ..recorder import columns
from ..sites import _HERE

_MOST_NODES = 50_000
"""Of one process; deeper ones count as their caller from then on. A recursion without end has as many."""
_DEEPEST = 200
"""Frames of one stack, counted from the innermost."""
_MOST_STACKS = 20_000
"""Remembered, 1 KB each; then all are looked up anew."""
_WAITING = frozenset(
    "threading.py queue.py queues.py selectors.py socket.py connection.py synchronize.py thread.py".split()
)
"""Files of the standard library in which threads and workers wait for something to do."""
_STANDARD = os.path.dirname(os.__file__) + os.sep
LIBRARY, USERS, TYPED = range(3)
"""Whose a line is. `TYPED`: it is in no file (`python -c`, exec, a cell of a notebook); or a library has made it so."""


class Stacks:
    """What was sampled since the last `flush`, and every node so far."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.rows: "list[tuple]" = []
        self.known: "dict[tuple, int]" = {}
        """Stacks, as they were sampled -> their node."""
        self.nodes: "dict[tuple[int, int], int]" = {}
        """(node above, site) -> node."""
        self.new: "list[tuple]" = []
        """Nodes that are not written yet."""
        self.threads: "dict[str, int]" = {"": 0}
        self.lines: "dict[tuple[int, int], tuple[int, int]]" = {}
        self.kept: "list[list]" = []
        """The code of `known` and `lines`, which know it by `id()`."""

    def add(self, step: int, part: int, thread: str, frame, weight: int, below=None) -> None:
        """A sample: `frame` is the innermost, but for those that `below` begins."""
        stack: list = []
        for start in (below, frame):
            while start is not None and len(stack) < 2 * _DEEPEST:
                stack += (start.f_code, start.f_lasti)
                start = start.f_back
        self.rows.append((step, part, thread, stack, weight))

    def flush(self) -> None:
        """Queue what is new. About 20 us for each new stack."""
        rows, self.rows = self.rows, []
        written = []
        for step, part, thread, stack, weight in rows:
            key = (*map(id, stack[::2]), *stack[1::2])
            node = self.known.get(key)
            if node is None:
                node = self.known[key] = self._node(stack)
                self.kept.append(stack)
            if thread not in self.threads:
                self.threads[thread] = len(self.threads)
                self.recorder.record("thread", id=self.threads[thread], name=thread)
            written.append((step, part, self.threads[thread], node, weight))
        if self.new:
            self.recorder.record("nodes", **columns(records.NODE_COLUMNS, self.new))
            self.new = []
        if written:
            self.recorder.record("stacks", **columns(records.STACK_COLUMNS, written))
        if len(self.known) > _MOST_STACKS:
            self.known.clear()
            self.lines.clear()
            self.kept.clear()

    def _node(self, stack: list) -> int:
        """The innermost node of a stack; -1 for one in which nothing but perfdoctor runs."""
        above = -1
        for number in range(len(stack) - 2, -1, -2):
            site, owner = self._line(stack[number], stack[number + 1])
            if owner < 0:
                continue
            node = self.nodes.get((above, site))
            if node is None:
                if len(self.nodes) >= _MOST_NODES:
                    break
                node = self.nodes[above, site] = len(self.nodes)
                self.new.append((above, site, owner))
            above = node
        return above

    def _line(self, code, place: int) -> "tuple[int, int]":
        """The site of an instruction and whose it is, -1 for perfdoctor's and the import system's."""
        found = self.lines.get((id(code), place))
        if found is None:
            found = self.lines[id(code), place] = self._found(code, place)
        return found

    def _found(self, code, place: int) -> "tuple[int, int]":
        file = code.co_filename
        if file.startswith((_HERE, "<frozen", "<perfdoctor>")):
            return -1, -1
        line = next(
            (line for start, end, line in code.co_lines() if start <= place < end and line), code.co_firstlineno
        )
        name = getattr(code, "co_qualname", code.co_name)
        if not self.sites.is_library(file):
            owner = USERS
        else:
            owner = TYPED if file.startswith("<") and not file.startswith("<eval_with_key") else LIBRARY
        return self.sites.number((file, line, name, None)), owner


def waits(frame) -> bool:
    """Whether a thread, or a worker, stands where there is nothing to do."""
    file = frame.f_code.co_filename
    return file.startswith(_STANDARD) and file.rpartition(os.sep)[2] in _WAITING
