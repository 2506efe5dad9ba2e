"""The window of repeated work: operators that compute again what the same step, or the step before, has computed; those
that others could stand for (`equivalents`); and derivatives and backward passes that one pass could do together
(`derivatives`, `passes_again`).

Three steps under a dispatch mode. Of each operator outside of the backward pass, the optimizer and the making of
batches it is known whether its arguments are the ones of an earlier call (`values`), what it took and from where it was
called; of nodes of the backward pass, what they took. The first step says what was there before, the others are judged.

A call counts as repeated only where the values that are there already would do: those of a call that recorded no
autograd graph, and needs none; or of one whose graph leads back to the same leaves and has not been passed through yet.
So what a checkpoint computes again in the backward pass does not count, nor a second pass through a graph that is
freed, nor a critic's forward pass through values that were detached in between. What is written to afterwards had to be
made anew, and so had memory that is filled with constants.
"""

import functools
import os
import sys
import time

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .. import timeline as parts
from ..rows import milliseconds, rounded
from . import innermost
from .aside import Aside, Seen
from .by_line import aside_rows, by_line, names, steps_by_line, weighted_rows, whole_line
from .calls_seen import Made, Node, backward_ns, passed_ns, spent_ns
from .choices import Choices
from .copies import Copies
from .derivatives import Derivatives
from .einsums import Einsums
from .equivalents import Equivalents
from .growing import Growing
from .innermost import InnermostMode
from .of_samples import OfSamples
from .passes_again import PassesAgain
from .rewritings import INTO_VIEWS
from .scores import Scores
from .subnormals import Suspicion
from .taken_apart import PARTS, TakenApart
from .values import Call, Values

_STEPS = 3
"""One that says what was there before, two that are judged."""
_LONGER = 5
"""Where something is known to come in some of the steps only."""
_LIMIT_NS = 10_000_000_000
"""The second step or any later one in which it is reached is the last: other work waits."""
_MOST = 60_000
"""Calls that are looked at: each takes about 25 us."""
_KEPT = 20
"""Rows kept, the largest."""
_LEAST = 0.005
"""Of all operators' time: less is not told."""
_ELSEWHERE = (parts.INPUT, parts.OPTIMIZER, parts.CHECKPOINT, parts.GC, parts.LOGGING)
_OF_LAYERS = os.path.join(os.path.dirname(torch.__file__), "nn", "")
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_clock = time.perf_counter_ns


class Repeats(TorchDispatchMode):
    """What is computed again."""

    def __init__(self, sites, loop) -> None:
        super().__init__()
        self.sites = sites
        self.passes = PassesAgain(sites, loop)
        self.loop = loop
        self.values = Values()
        self.scores = Scores()
        self.aside: "Aside | None" = Aside(loop.timeline, self.values)
        self.samples: "OfSamples | None" = OfSamples(loop.timeline, self.values)
        self.growing: "Growing | None" = Growing(self.values)
        self.suspicion = Suspicion()
        self.equivalents = Equivalents()
        self.apart = TakenApart()
        self.copies = Copies()
        self.began = loop.timeline.step
        self.made: "list[Made]" = []
        self.earlier: "dict[int, list[Made]]" = {}
        """Calls by the number of their values."""
        self.makers: "dict[int, list[Made]]" = {}
        """Calls that made what a storage holds, by its address."""
        self.nodes: "dict[int, Node]" = {}
        """By the sequence number that autograd gave them."""
        self.sequence = _next_sequence()
        self.given: "dict[int, int]" = {}
        """How many batches and constants had been read as a step ended."""
        self.spent_ns: "dict[int, int]" = {}
        """Of all operators, by step."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in something that imports Dynamo: a second, for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled() and _is_made_of_others(func):
            with self:
                return func._op_dk(_COMPOSITE, *args, **kwargs)
        made = call = None
        has_node = is_judged = False
        try:
            # Autograd makes the node before it calls the operator itself.
            sequence, self.sequence = self.sequence, _next_sequence()
            has_node = self.sequence > sequence
            is_judged = not func.is_view and self._is_judged(has_node)
            if is_judged:
                with torch._C.DisableTorchFunction():
                    call = self.values.call(func, args, kwargs)
                if call is None or call.reads:
                    made = self._begins(func, call, has_node)
        except Exception:  # a tensor of an exotic kind: this call is not known
            made = call = None
        began = _clock()
        result = func(*args, **kwargs)
        took = _clock() - began
        try:
            with torch._C.DisableTorchFunction():
                self._ended(func, args, kwargs, result, took, made, call)
                if call is not None and call.keeps:
                    call = None  # to nobody else: it does something beside its result, and mixes samples
                if self.aside is not None:
                    self.aside.ended(func, args, kwargs, result, Seen(made, is_judged, call is not None, has_node))
                if self.samples is not None:
                    self._of_samples(func, args, kwargs, result, made, call, is_judged)
                self.scores.ended(args, kwargs, result, took, has_node)
                self.suspicion.ended(args, result, took)
        except Exception:
            if made is not None:
                made.first = None
        if func in PARTS and has_node:
            try:
                with torch._C.DisableTorchFunction():
                    self._takes_apart(func, args[0], result)
            except Exception:  # this part is not known
                pass
        if made is not None:
            try:
                with torch._C.DisableTorchFunction():
                    self.equivalents.ended(made, args, kwargs, result, self.values.holds)
                    self.copies.ended(made, args, result, self.sites.is_library(sys._getframe(1).f_code.co_filename))
            except Exception:  # what it would take the place of stays as it is
                pass
        return result

    def renumbered(self) -> None:
        """Nodes were recorded that are none of the job's."""
        self.sequence = _next_sequence()

    def _is_judged(self, has_node: bool) -> bool:
        """Whether what runs now is the job's own computing, forwards."""
        return (
            torch._C._current_graph_task_id() < 0
            and self.loop.timeline.stack[-1] not in _ELSEWHERE
            and len(self.made) < _MOST
        )

    def _begins(self, func, call: "Call | None", has_node: bool) -> Made:
        """A call, by where it comes from and what it repeats."""
        graph = call.graph if call is not None and has_node else None
        made = Made(func, self._user_lines(3), self.loop.timeline.step - self.began, graph)
        if made.node is not None:
            self.nodes[self.sequence - 1] = made.node
            if func in INTO_VIEWS:
                self.nodes[self.sequence] = made.node
        if call is not None:
            made.number = call.number
            made.reads_parameters = call.reads_parameters
            before = self.earlier.setdefault(call.number, [])
            made.repeats(before)
            before.append(made)
        self.made.append(made)
        return made

    def _of_samples(
        self, func, args, kwargs, result, made: "Made | None", call: "Call | None", is_judged: bool
    ) -> None:
        if is_judged:
            self.samples.ended(func, args, kwargs, result, made, call)
        elif func.is_view:
            self.samples.viewed(args[0])
        elif torch._C._current_graph_task_id() >= 0:
            self.samples.passes_back()

    def _takes_apart(self, func, whole, part) -> None:
        """A part of a tensor is read, with a node of its own; what torch's layers read is not the job's to change."""
        if torch._C._current_graph_task_id() >= 0 or self.apart.is_full():
            return
        if sys._getframe(2).f_code.co_filename.startswith(_OF_LAYERS):
            return
        made = Made(func, self._user_lines(3), self.loop.timeline.step - self.began, graph=0)
        self.nodes[self.sequence - 1] = made.node
        self.apart.read(made, whole, part)

    def _user_lines(self, depth: int) -> tuple:
        """Of the stack from `depth` frames above, the outermost first."""
        stack = self.sites.stack(sys._getframe(depth))
        return tuple(place for place in reversed(stack) if not self.sites.is_library(place[0]))

    def _ended(self, func, args, kwargs, result, took: int, made: "Made | None", call: "Call | None") -> None:
        step, is_batch = self.loop.timeline.step - self.began, self.loop.timeline.stack[-1] == parts.INPUT
        if not is_batch:
            self.given[step] = len(self.values.given)
            self.spent_ns[step] = self.spent_ns.get(step, 0) + took
        if made is None:
            self._passed(took)
        else:
            self.passes.reads(args)
            made.spent_ns = took
            if self.growing is not None:
                self.growing.ended(made, args, kwargs, result)
            if call is not None and not made.compare(result):
                call = None
        if made is None or made.first is None:
            written = self.values.written(func, args, kwargs)
            self.copies.written(written)
            for address in written:
                for maker in self.makers.pop(address, ()):
                    maker.is_used_up = True
        self.values.done(func, args, kwargs, result, call, is_batch)
        address = self.values.holder(result) if made is not None else None
        if address is not None:
            self.makers.setdefault(address, []).append(made)

    def _passed(self, took: int) -> None:
        """Something of the backward pass, if that runs."""
        task = torch._C._current_graph_task_id()
        node = torch._C._current_autograd_node() if task >= 0 else None
        known = self.nodes.get(node._sequence_nr()) if node is not None else None
        if known is not None:
            known.comes(task, self.passes.number)
            known.spent_ns += took
            self.passes.passed(known.before, took)

    def summary(self, steps: int) -> dict:
        """What is computed again per step, the dearest line first; of `steps` steps all but the first are judged."""
        seen = [one for one in self.made if one.step or (one.first is not None and one.first.step)]
        whole = sum(ns for step, ns in self.spent_ns.items() if step)
        again, self.kept = self.samples.judged(whole, steps - 1)
        spent, lines = by_line(seen), steps_by_line(seen)
        self.each_epoch = aside_rows(again, spent, lines, steps - 1, self.sites)
        return {
            **self._judged(seen, spent, whole, steps - 1, steps),
            **self._aside(spent, lines, steps - 1),
            **self.scores.summary(),
            "growing": self.growing.rows(steps, sum(self.spent_ns.values()), self.sites),
            "asks": list(self.suspicion.asks),
        }

    def _judged(self, seen: "list[Made]", spent: "dict[tuple, int]", whole: int, judged: int, steps: int) -> dict:
        """What some of the calls compute again in `judged` steps, whose operators took `whole` nanoseconds; and what
        others could stand for in all `steps`."""
        again = [one for one in seen if one.first is not None and not one.is_used_up]
        repeated = by_line(again)
        rows: "dict[tuple, list[Made]]" = {}
        for one in again:
            if one.stack:
                rows.setdefault(whole_line(one.stack, spent, repeated), []).append(one)
        told = sorted(rows.items(), key=lambda item: -spent_ns(item[1]))[:_KEPT]
        return {
            "ops_ms": milliseconds(whole, judged),
            "equivalents": [
                *self.equivalents.rows(steps, sum(self.spent_ns.values()), self.sites, passed_ns),
                *self.apart.rows(steps, self.sites),
                *self.copies.rows(steps, self.sites),
            ],
            "rows": [
                self._row(line, calls, judged, steps) for line, calls in told if spent_ns(calls) >= _LEAST * whole
            ],
        }

    def _aside(self, spent: "dict[tuple, int]", lines: "dict[tuple, set[int]]", judged: int) -> dict:
        """What is computed aside, by line, in `judged` steps."""
        self.equivalents.close()  # what is there now is there for somebody else
        return {
            "weighted": weighted_rows(self.aside.weighted(), judged, self.sites, passed_ns),
            **{kind: aside_rows(calls, spent, lines, judged, self.sites) for kind, calls in self.aside.calls().items()},
        }

    def _row(self, line: tuple, calls: "list[Made]", judged: int, steps: int) -> dict:
        longest = max(calls, key=lambda one: one.spent_ns)
        unchanged = [one for one in calls if self._is_unchanged(one, steps)]
        return {
            "at": self.sites.number((*line[-1], None)),
            "first_at": None if longest in unchanged else self._first_at(longest),
            "on_same_data": len(set(self.given.values())) == 1,
            "of_parameters": any(one.reads_parameters for one in calls),
            "is_unchanged": 2 * sum(one.spent_ns for one in unchanged) > sum(one.spent_ns for one in calls),
            "ops_per_step": rounded(len(calls) / judged),
            "forward_ms": milliseconds(sum(one.spent_ns for one in calls), judged),
            "backward_ms": milliseconds(sum(map(backward_ns, calls)), judged),
            "operators": names(calls),
        }

    def _is_unchanged(self, one: Made, steps: int) -> bool:
        """Whether every step makes it, or each of as many as it takes to tell them from the two sides of an update."""
        return steps > 1 and len({other.step for other in self.earlier[one.number]}) >= min(steps, _STEPS)

    def _first_at(self, one: Made) -> "int | None":
        """The line that leads to the first of two calls and not to the second; None where there is none."""
        pairs = zip(one.first.stack, one.stack)
        line = next((first for first, second in pairs if first != second), None)
        return self.sites.number((*line, None)) if line is not None else None


@functools.lru_cache(maxsize=None)
def _is_made_of_others(func) -> bool:
    """Whether it calls other operators and nothing else. Autograd has such a one do so before a mode hears of it, and
    inference mode does not."""
    has, name = torch._C._dispatch_has_kernel_for_dispatch_key, func.name()
    return has(name, "CompositeImplicitAutograd") and not has(name, "CPU")


def _next_sequence() -> int:
    """The number that autograd gives the next node of this thread."""
    return torch._C._autograd._get_sequence_nr()


class RepeatsWindow(InnermostMode):
    """Opened at one step boundary, closed at another."""

    name = "repeats"
    microbenchmark = final_microbenchmark = None
    asks: "tuple[str, ...]" = ()
    """Windows that are to look closer."""
    of_samples: "tuple | None" = None
    """Says whether what every epoch computes again is still as it was; and what that is."""

    def __init__(self, sites, loop, compiled: bool, evaluation) -> None:
        self.sites = sites
        self.loop = loop
        self.compiled = compiled
        self.evaluation = evaluation

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        on_device = "operators on a CUDA device run on after the host has called them"
        return innermost.obstacle(self.compiled) or (on_device if torch.cuda.is_initialized() else "")

    def open(self) -> None:
        watch = Repeats(self.sites, self.loop)
        watch.passes.open()
        self.einsums = Einsums(self.sites, watch.renumbered)
        self.einsums.open()
        self.choices = Choices(self.sites)
        self.choices.open()
        self.derivatives = Derivatives(self.sites, self.loop, watch.renumbered)
        self.derivatives.open()
        self.opened_ns = _clock()
        self.evaluation.on_scores = watch.scores.made
        watch.aside.open()
        self.loop.on_batch = watch.samples.given
        self.enter(watch)

    def stays(self, steps: int) -> bool:
        """Until there are steps enough to judge, or for a loop that takes several for each of its turns."""
        if steps < 2:
            return True
        enough = _LONGER if self.watch.growing.waits() else _STEPS
        return steps < enough and _clock() - self.opened_ns < _LIMIT_NS

    def abandon(self) -> None:
        """Leave the mode."""
        self.evaluation.on_scores = self.loop.on_batch = None
        self.watch.aside.close()
        self.derivatives.close()
        self.watch.passes.close()
        self.choices.close()
        self.einsums.close()
        self.watch.__exit__(None, None, None)

    def close(self, steps: int) -> dict:
        """Leave the mode; what `steps` steps have computed again."""
        self.abandon()
        watch, self.watch = self.watch, None
        self.asks = watch.suspicion.asks
        found = watch.summary(steps)
        if watch.each_epoch:
            self.of_samples = watch.samples.is_as_it_was, {"lines": watch.each_epoch, **watch.kept}
        found["equivalents"] += self.einsums.rows(steps) + self.choices.rows(steps)
        return {**found, "derivatives": self.derivatives.summary(steps), "passes_again": watch.passes.summary(steps)}
