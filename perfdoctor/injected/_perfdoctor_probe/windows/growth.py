"""What the job keeps more and more of: containers that get longer and autograd graphs that get deeper, by name.

A census counts both (`holdings`), about 45 ms at most; each comes after as many steps again as there were before, so
that there are few. What has grown from one to the next twice, the same object by the same name, is told, with the line
that makes it grow. Then the lines of a step are timed once more, to be compared with those of the line window.
"""

import gc
import re
import sys
from itertools import islice

import torch

from .growing_lines import GrowingLines
from .holdings import Holdings

FIRST_STEP = 16
"""Before it, what a loop keeps (averages, an optimizer's state) may not be complete."""
_LEAST_STEPS = 8
"""Between two censuses."""
_LEAST_PER_STEP = 0.05
"""Elements, or nodes of a graph: what gains one in 20 steps is no part of the step."""
_TOLD = 6
"""Containers at most, those first that keep graphs, then tensors, then most elements."""
_ALIKE = 0.8
"""Of the fastest growth: graphs that grow so hold one another."""
_LAST = 8
"""Elements looked at, the newest."""
_MOST_NODES = 10_000
"""Of a graph: about 10 ms to count."""
_UNNUMBERED = 1 << 63
_MODULE_PART = re.compile(r'\._(?:modules|buffers|parameters)\["(\w+)"\]')


class _Trend:
    """A container or a tensor's graph, from census to census."""

    __slots__ = ("first_size", "first_step", "path", "rises", "size", "step")

    def __init__(self, path: str, step: int, size: int) -> None:
        self.path = path
        self.first_step = self.step = step
        self.first_size = self.size = size
        self.rises = 0

    @property
    def per_step(self) -> float:
        return (self.size - self.first_size) / max(1, self.step - self.first_step)

    @property
    def grows(self) -> bool:
        return self.rises >= 2 and self.per_step >= _LEAST_PER_STEP


class Growth:
    """All censuses of one process."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.reset()

    def reset(self) -> None:
        self.lengths: "dict[int, _Trend]" = {}
        self.graphs: "dict[str, _Trend]" = {}
        self.newest = _UNNUMBERED
        """Number of the newest node at the last census: a graph without an older one is of later steps alone, such as
        that of a sequence which is longer."""
        self.due = FIRST_STEP
        self.step = 0

    def take(self, step: int) -> bool:
        """A census. True where something grows."""
        self.due = max(step + _LEAST_STEPS, 2 * step - FIRST_STEP // 2)
        # What is made here is freed here: it may not set off a collection of the job's garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._take(step)
        finally:
            if collects:
                gc.enable()

    def _take(self, step: int) -> bool:
        held = Holdings(self.sites).walk(sys._getframe(1))
        self.lengths = {
            number: _next(self.lengths.get(number), one.path, step, one.length)
            for number, one in held.containers.items()
        }
        nodes = {one.path: (one, *_nodes(one.one)) for one in held.tensors.values() if _has_graph(one.one)}
        self.graphs = {
            path: _next(self.graphs.get(path), path, step, count)
            for path, (_, count, oldest, _) in nodes.items()
            if oldest <= self.newest
        }
        self.newest = max((newest for *_, newest in nodes.values()), default=self.newest)
        self.step = step
        grown = [(trend, held.containers[number]) for number, trend in self.lengths.items() if trend.grows]
        deeper = [(trend, nodes[path][0]) for path, trend in self.graphs.items() if trend.grows]
        if grown or deeper:
            self._record(grown, deeper)
        return bool(grown or deeper)

    def _record(self, grown: list, deeper: list) -> None:
        lines = GrowingLines(self.sites)
        containers = []
        for trend, held in grown:
            tensors, graphs, size = _contents(held.one)
            containers.append(
                {
                    "name": _MODULE_PART.sub(r".\1", trend.path),
                    "kind": type(held.one).__name__,
                    "length": trend.size,
                    "per_step": trend.per_step,
                    "tensors": tensors,
                    "graphs": graphs,
                    "bytes_per_step": int(size * trend.per_step),
                    "held": held,
                }
            )
        containers.sort(key=lambda one: (-one["graphs"], -one["bytes_per_step"], -one["per_step"]))
        for one in containers[:_TOLD]:
            held = one.pop("held")
            uses, called = lines.uses(held)
            one.update(site=lines.grows(held), uses=uses, passed_to=called)
        graphs = [
            {
                "name": _MODULE_PART.sub(r".\1", trend.path),
                "nodes": trend.size,
                "per_step": trend.per_step,
                "site": lines.sets(held),
            }
            for trend, held in _carried(deeper)
        ]
        self.recorder.record("growth", step=self.step, containers=containers[:_TOLD], graphs=graphs)


def _next(before: "_Trend | None", path: str, step: int, size: int) -> _Trend:
    """The trend with this census; a new one for another object under an old number, and for what did not grow."""
    if before is None or before.path != path or size <= before.size:
        return _Trend(path, step, size)
    before.rises += 1
    before.step, before.size = step, size
    return before


def _carried(deeper: list) -> list:
    """The one that is carried from step to step: what is computed from it keeps its graph too, and some nodes more."""
    most = max((trend.per_step for trend, _ in deeper), default=0.0)
    alike = [pair for pair in deeper if pair[0].per_step >= _ALIKE * most]
    return sorted(alike, key=lambda pair: pair[0].size)[:1]


def _has_graph(tensor) -> bool:
    return tensor.grad_fn is not None


def _nodes(tensor) -> "tuple[int, int, int]":
    """Of the graph that a tensor keeps alive: how many, and the numbers of the oldest and the newest. Autograd numbers
    nodes as it makes them, but for those that lead to parameters."""
    met = {id(tensor.grad_fn): tensor.grad_fn}
    waiting = list(met.values())
    oldest, newest = _UNNUMBERED, 0
    while waiting and len(met) < _MOST_NODES:
        node = waiting.pop()
        number = node._sequence_nr()
        if number < _UNNUMBERED:
            oldest, newest = min(oldest, number), max(newest, number)
        for further, _ in node.next_functions:
            if further is not None and id(further) not in met:
                met[id(further)] = further
                waiting.append(further)
    return len(met), oldest, newest


def _contents(container) -> "tuple[float, float, float]":
    """Of the newest elements: the shares with tensors and with graphs, and the mean bytes of tensors."""
    values = dict.values(container) if isinstance(container, dict) else container
    newest = list(islice(values if isinstance(values, set) else reversed(values), _LAST))
    tensors = graphs = size = 0
    for one in newest:
        parts = one if type(one) in (tuple, list) else (one,)
        own = [part for part in parts[:_LAST] if type(part) in (torch.Tensor, torch.nn.Parameter)]
        tensors += bool(own)
        graphs += any(map(_has_graph, own))
        size += sum(part.untyped_storage().nbytes() for part in own)
    count = max(1, len(newest))
    return tensors / count, graphs / count, size / count
