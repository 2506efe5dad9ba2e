"""What the job keeps more and more of: containers that get longer, hooks that pile up, tensors that get larger,
autograd graphs that get deeper and what is wrapped anew, by name.

A census counts all of these (`holdings`), about 45 ms at most; each comes after as many steps again as there were
before, so that there are few. What has grown from one to the next twice, the same object or another one by the same
name, is told, with the line that makes it grow. Then the lines of a step are timed once more, to be compared with those
of the line window; so are those of steps that get longer, whatever grows.
"""

import gc
import re
import sys
import time
from collections import deque
from itertools import islice

import torch

from . import growing_handlers, growing_hooks, nesting, tensor_sizes
from .growing_hooks import are_hooks
from .growing_lines import GrowingLines
from .holdings import Holdings
from .planned import planned

FIRST_STEP = 16
"""Before it, what a loop keeps (averages, an optimizer's state) may not be complete."""
_LEAST_STEPS = 8
"""Between two censuses."""
_RISES = 2
"""From one census to the next, in a row."""
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
_UNNAMED = "[...]"
"""In the path of what many elements of a container are called."""
_MODULE_PART = re.compile(r'\._(?:modules|buffers|parameters)\["(\w+)"\]')


_LEAST_BYTES = 4
"""Per step, by which a tensor grows: one number."""
_LATE_STEP = 100
"""By the census of the 136th step a value of 1e-36 that is multiplied by 0.97 in each has become subnormal; Adam's
average of a gradient of 1e-3 that is 0 from then on needs some 770 steps."""
_LONGER = 1.1
"""Steps of two censuses, as the check's own threshold: twice, and the lines are timed once more."""


class _Trend:
    """A container, a tensor or its graph, from census to census."""

    __slots__ = ("ends", "first_size", "first_step", "path", "rises", "rows", "size", "spread", "step")

    def __init__(self, path: str, step: int, size: int) -> None:
        self.path = path
        self.first_step = self.step = step
        self.first_size = self.size = size
        self.rises = 0
        self.ends = None
        """Of a tensor that has grown: values that a larger one must have too."""
        self.spread: list = []
        """The same of one that is sorted."""
        self.rows: "tuple[int, dict[int, tuple]]" = 0, {}
        """Rows of it that a larger one must have in the same places."""

    @property
    def per_step(self) -> float:
        return (self.size - self.first_size) / max(1, self.step - self.first_step)

    @property
    def grows(self) -> bool:
        return self.rises >= _RISES and self.per_step >= _LEAST_PER_STEP


class Growth:
    """All censuses of one process."""

    def __init__(self, recorder, sites, roots=(), loading=None) -> None:
        """`roots`: objects, by name, that no name of the job's need lead to. `loading`: knows the loaders of a training
        process, of which it is told how long it is going to be."""
        self.recorder = recorder
        self.sites = sites
        self.roots = roots
        self.loading = loading
        self.reset()

    def reset(self) -> None:
        self.lengths: "dict[int, _Trend]" = {}
        self.graphs: "dict[str, _Trend]" = {}
        self.sizes: "dict[str, _Trend]" = {}
        self.layers: "dict[int, _Trend]" = {}
        self.handlers: "dict[tuple, int]" = {}
        self.newest = _UNNUMBERED
        """Number of the newest node at the last census: a graph without an older one is of later steps alone, such as
        that of a sequence which is longer."""
        self.due = FIRST_STEP
        self.step = 0
        self.pace = (0, 0, 0.0, 0)
        """Of the last census: its step, when it ended, how long a step was until then, and how often it was longer."""

    @property
    def is_late(self) -> bool:
        """Whether values have had time to fade since the first windows; from here on a look costs little."""
        return self.step >= _LATE_STEP

    def take(self, step: int, first: int = 0) -> bool:
        """A census. True where something grows, and where steps get longer. `first`: as in `planned`."""
        self.due = max(step + _LEAST_STEPS, 2 * step - FIRST_STEP // 2)
        longer = self._pace(step)
        # What is made here is freed here: it may not set off a collection of the job's garbage.
        collects = gc.isenabled()
        gc.disable()
        try:
            plan = planned(self.sites, step, self.loading, first) if longer or self.loading is not None else None
            if plan is not None:
                self.recorder.record("planned", step=step, **plan)
            # What is asked of tensors here is no call of the job's: a function mode of its own does not see it.
            with torch._C.DisableTorchFunction():
                return self._take(step) or longer
        finally:
            if collects:
                gc.enable()
            self.pace = (step, time.perf_counter_ns(), *self.pace[2:])

    def _pace(self, step: int) -> bool:
        """Whether steps have got longer from census to census, twice."""
        last, ended, before, times = self.pace
        if not last:
            return False
        took = (time.perf_counter_ns() - ended) / max(1, step - last)
        times = times + 1 if 0 < before * _LONGER < took else 0
        self.pace = (last, ended, took, times)
        return times >= 2

    def _take(self, step: int) -> bool:
        held = Holdings(self.sites).walk(sys._getframe(1), (*self.roots, *growing_hooks.of_all_modules()))
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
        larger = self._larger(held, step)
        self.layers = {
            kind: _next(self.layers.get(kind), nesting.maker(one.one), step, one.layers)
            for kind, one in held.nested.items()
        }
        self.step = step
        every = ((trend, held.containers[number]) for number, trend in self.lengths.items())
        grown = [(trend, one) for trend, one in every if trend.grows or _piles_up(trend, one)]
        deeper = [(trend, nodes[path][0]) for path, trend in self.graphs.items() if trend.grows]
        lines = GrowingLines(self.sites)
        alike = growing_hooks.alike(held.containers.values(), self.lengths, lines)
        wrapped = [
            (trend, held.nested[kind])
            for kind, trend in self.layers.items()
            if trend.rises >= _RISES and trend.size >= nesting.LEAST
        ]
        handlers = growing_handlers.alike(self.handlers, lines)
        some = bool(grown or deeper or larger or alike or wrapped or handlers)
        if some:
            told = {"alike_hooks": alike, "wrapped": nesting.told(wrapped, lines), "alike_handlers": handlers}
            self._record(grown, deeper, larger, lines, told)
        return some

    def _larger(self, held: Holdings, step: int) -> list:
        """Tensors and arrays that grow, and carry on what they held."""
        sizes: "dict[str, _Trend]" = {}
        found = []
        for one in (*held.tensors.values(), *held.arrays.values()):
            count = tensor_sizes.size(one.one) if _UNNAMED not in one.path else 0
            if not count:
                continue
            before = self.sizes.get(one.path)
            rises = before.rises if before is not None else 0
            now = sizes[one.path] = _next(before, one.path, step, count)
            if now.rises > rises:
                ends, spread = tensor_sizes.ends(one.one), tensor_sizes.spread(one.one)
                carried = now.ends is None or tensor_sizes.is_carried(now.ends, ends)
                carried = carried or tensor_sizes.are_there(one.one, now.rows)
                if not carried and not (spread and tensor_sizes.holds(one.one, now.spread)):
                    now.rises = 1
                now.ends, now.spread, now.rows = ends, spread, tensor_sizes.rows(one.one)
            if now.rises >= _RISES and now.per_step >= _LEAST_BYTES:
                found.append((now, one))
        self.sizes = sizes
        return found

    def _record(self, grown: list, deeper: list, larger: list, lines: GrowingLines, told: dict) -> None:
        """`told`: what else there is, as it is recorded."""
        hooks = growing_hooks.told([pair for pair in grown if are_hooks(pair[1])], lines)
        for one in (*hooks, *told["alike_hooks"]):
            one["name"] = _MODULE_PART.sub(r".\1", one["name"])
        containers = []
        for trend, held in grown:
            if are_hooks(held):
                continue
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
            one["picked_at"] = lines.picks(held) if isinstance(held.one, deque) else -1
        graphs = [
            {
                "name": _MODULE_PART.sub(r".\1", trend.path),
                "nodes": trend.size,
                "per_step": trend.per_step,
                "site": lines.sets(held),
            }
            for trend, held in _carried(deeper)
        ]
        tensors = []
        for trend, held in sorted(larger, key=lambda pair: -pair[0].per_step)[:_TOLD]:
            site = lines.extends(held)
            if site >= 0:
                tensors.append(
                    {
                        "name": _MODULE_PART.sub(r".\1", trend.path),
                        "bytes": trend.size,
                        "bytes_per_step": int(trend.per_step),
                        "site": site,
                        "uses": lines.heirs(held),
                        "passed_to": lines.uses(held)[1],
                    }
                )
        self.recorder.record(
            "growth",
            step=self.step,
            containers=containers[:_TOLD],
            graphs=graphs,
            larger_tensors=tensors,
            hooks=hooks,
            **told,
        )


def _next(before: "_Trend | None", path: str, step: int, size: int) -> _Trend:
    """The trend with this census; a new one for another object under an old number, and for what did not grow."""
    if before is None or before.path != path or size <= before.size:
        return _Trend(path, step, size)
    before.rises += 1
    before.step, before.size = step, size
    return before


def _piles_up(trend: _Trend, held) -> bool:
    """Of hooks: one for each epoch is one too many for each of its steps; and where one function is there several times
    already, once more is enough."""
    return are_hooks(held) and trend.rises > (0 if growing_hooks.repeat(held) else 1)


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
