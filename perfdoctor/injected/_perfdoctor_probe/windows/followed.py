"""Follows the calls of the user's own functions on one thread: what they were given, returned and took.

`sys.setprofile` tells of each call and return, those of built-in functions too. What that takes, and comparing, is
measured and is nobody's time. A function is let go once it is known to be of no interest: it returns nothing, takes
next to no time, or was never given the same twice; it draws random numbers, changes an object that it was given, calls
a module, starts a backward pass or takes a batch from a loader.
"""

import inspect
import sys
import time

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from . import draws
from .content import Content, NotComparableError, fingerprint

_MOST = 20_000
"""Calls that are looked at, about 40 us each."""
_MOST_BYTES = 1 << 28
"""Of arguments and results that are compared in all: 0.15 s."""
_TRIED = 8
"""Calls after which a function that takes less than `_SHORT_NS` on average is let go: keeping its results saves little,
and what it takes is hard to tell from what watching it does."""
_SHORT_NS = 20_000
_DIFFERENT = 32
"""Calls with other arguments each time, after which a function is let go."""
_CALIBRATED = 500
"""Calls by which the cost of being told of one is measured: 0.3 ms."""
_LOCALS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_ANYTHING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_clock = time.perf_counter_ns


class Function:
    """One of the user's, by its code."""

    __slots__ = ("calls", "code", "differs", "is_let_go", "moves", "names", "returned", "spent_ns")

    def __init__(self, code) -> None:
        self.code = code
        count = code.co_argcount + code.co_kwonlyargcount
        count += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        self.names = (*code.co_varnames[:count], *code.co_freevars)
        """What a call of it is given: its arguments, and what it closes over."""
        self.calls = self.spent_ns = 0
        self.returned: "dict[bytes, bytes]" = {}
        """By its arguments."""
        self.is_let_go = False
        self.differs = False
        """It has returned something else for the same arguments, or what cannot be compared."""
        self.moves = False
        """Its result is not all that a call of it is for."""

    @property
    def makes(self) -> bool:
        """Whether it makes an object: that is its result."""
        return self.code.co_name == "__init__"


class Call:
    """One that was looked at."""

    __slots__ = (
        "above",
        "at",
        "began_ns",
        "frame",
        "function",
        "key",
        "lost_ns",
        "made",
        "number",
        "objects",
        "part",
        "spent_ns",
        "states",
        "telling",
    )

    def __init__(self, function: Function, above: "Call | None", at: "tuple | None", part: int) -> None:
        self.function = function
        self.above = above
        """The innermost call that it was made in."""
        self.at = at
        """The user's line that called it, as code and number; None where a library did."""
        self.part = part
        """As of the timeline."""
        self.frame = self.made = self.states = None
        self.objects: tuple = ()
        self.key: "bytes | None" = None
        """Of its arguments; None where they cannot be compared."""
        self.number: "bytes | None" = None
        """Of its result; None where it cannot be compared, or there is none."""
        self.telling = 0
        self.began_ns = self.lost_ns = self.spent_ns = 0

    def forget(self) -> None:
        """It has returned: nothing of the job's is kept."""
        self.frame = self.made = self.states = None
        self.objects = ()


class Follower:
    """Runs from `begin` to `end`, on the thread of both; again and again, where it is asked to."""

    def __init__(self, sites, loop) -> None:
        self.sites = sites
        self.loop = loop
        self.functions: "dict[object, Function | None]" = {}
        """By code; None for a library's, and for what is no function or returns more than once."""
        self.calls: "list[Call]" = []
        self.open: "list[Call]" = []
        self.bytes = 0
        self.lost = [0] * len(loop.timeline.spent)
        """Nanoseconds of ours, by part."""
        self.lost_ns = 0
        """All of them."""
        self.totals = [0] * len(self.lost)
        """Nanoseconds of whole steps, by part."""
        self.live = loop.timeline.spent
        self.event_ns = self.began_ns = self.wall_ns = 0
        self.moving = {
            torch.nn.Module._call_impl.__code__,
            torch.autograd.backward.__code__,
            torch.autograd.grad.__code__,
            _BaseDataLoaderIter.__next__.__code__,
        }
        """Code of functions that learn, or that give something else each time."""
        self.told = self._told  # one object, to be known by identity

    def begin(self) -> None:
        """From here on."""
        if not self.event_ns:
            self.event_ns = self._cost_ns()
        self.live = self.loop.timeline.spent
        self.began_ns = _clock()
        sys.setprofile(self.told)

    def end(self) -> None:
        """Not any more; if the job has begun to profile meanwhile, that goes on."""
        if sys.getprofile() is self.told:
            sys.setprofile(None)
        self.wall_ns += _clock() - self.began_ns
        self._count_step()
        for call in self.open:
            call.forget()
        self.open.clear()

    def age_ns(self) -> int:
        """Since `begin`."""
        return _clock() - self.began_ns

    # -- what Python tells --------------------------------------------------------------------------------

    def _told(self, frame, event, arg) -> None:
        if event == "call":
            function = self.functions.get(frame.f_code, self)
            if function is self:
                function = self._known(frame.f_code)
            if self.loop.timeline.spent is not self.live:
                self._count_step()
            if function is None:
                if self.open and frame.f_code in self.moving:
                    _moves(self.open[-1])
            elif not function.is_let_go:
                self._called(frame, function)
                return
            elif function.moves and self.open:
                _moves(self.open[-1])
        elif event == "return":
            if self.open and self.open[-1].frame is frame:
                self._returned(arg)
                return
        elif event == "c_call" and self.open and draws.draws(arg):
            _moves(self.open[-1])
        self.lost[self.loop.timeline.stack[-1]] += self.event_ns
        self.lost_ns += self.event_ns

    def _called(self, frame, function: Function) -> None:
        began = _clock()
        caller = frame.f_back
        while caller is not None and _passes_on(caller.f_code):
            caller = caller.f_back
        is_users = caller is not None and not self.sites.is_library(caller.f_code.co_filename)
        call = Call(
            function,
            self.open[-1] if self.open else None,
            (caller.f_code, caller.f_lineno) if is_users else None,
            self.loop.timeline.stack[-1],
        )
        call.frame = frame
        if len(self.calls) < _MOST and self.bytes < _MOST_BYTES:
            self.calls.append(call)
            try:
                self._look_at_arguments(call, frame)
            except Exception:  # a value of an exotic kind: this call is not compared
                call.key = None
        self.open.append(call)
        self._lose(began)
        call.lost_ns = self.lost_ns
        call.began_ns = _clock()

    def _look_at_arguments(self, call: Call, frame) -> None:
        given, content = frame.f_locals, Content(of_arguments=True)
        for name in call.function.names:
            if call.function.makes and call.made is None:
                call.made = given[name]
            elif name in given:
                content.add(given[name])
        self.bytes += content.bytes
        kept = [one for held in content.objects for one in draws.kept_by(held, deepest=1)]
        call.objects = content.objects, fingerprint(content.objects), kept
        call.states = draws.state(), draws.state_of(kept)
        call.key = content.number

    def _returned(self, result) -> None:
        now = _clock()
        call = self.open.pop()
        call.spent_ns = max(0, now - call.began_ns - (self.lost_ns - call.lost_ns))
        try:
            self._look_at_result(call, result)
        except NotComparableError:
            call.function.differs = True
        except Exception:  # as for the arguments
            call.key = None
        call.forget()
        self._judge(call)
        self._lose(now)

    def _look_at_result(self, call: Call, result) -> None:
        if call.key is None:
            return
        objects, before, kept = call.objects
        if call.states != (draws.state(), draws.state_of(kept)) or before != fingerprint(objects):
            _moves(call)
            return
        if call.function.makes:
            result = call.made
        if result is None:
            raise NotComparableError
        content = Content()
        content.add(result)
        self.bytes += content.bytes
        call.number, call.telling = content.number, content.telling

    def _judge(self, call: Call) -> None:
        function = call.function
        function.calls += 1
        function.spent_ns += call.spent_ns
        if call.key is not None and call.number is not None:
            before = function.returned.setdefault(call.key, call.number)
            function.differs |= before != call.number
        is_tried, is_known = function.calls >= _TRIED, bool(function.returned)
        function.is_let_go |= (
            function.differs
            or (is_tried and (not is_known or function.spent_ns < _SHORT_NS * function.calls))
            or (function.calls >= _DIFFERENT and len(function.returned) == function.calls)
        )

    # -- what time it is ----------------------------------------------------------------------------------

    def _known(self, code) -> "Function | None":
        is_function = code.co_flags & _LOCALS == _LOCALS and not code.co_flags & _PAUSES
        named = not code.co_name.startswith("<")
        users = is_function and named and not self.sites.is_library(code.co_filename)
        found = self.functions[code] = Function(code) if users else None
        return found

    def _count_step(self) -> None:
        for part, ns in enumerate(self.live):
            self.totals[part] += ns
        self.live = self.loop.timeline.spent

    def _lose(self, began: int) -> None:
        took = _clock() - began + self.event_ns
        self.lost[self.loop.timeline.stack[-1]] += took
        self.lost_ns += took

    def _cost_ns(self) -> int:
        """Of being told of a call, or of its end, while a function is followed."""
        numbers = [0] * _CALIBRATED
        self.open.append(Call(Function(self._cost_ns.__code__), None, None, 0))
        sys.setprofile(self.told)
        began = _clock()
        for _ in numbers:
            len(numbers)
        told = _clock() - began
        sys.setprofile(None)
        began = _clock()
        for _ in numbers:
            len(numbers)
        untold = _clock() - began
        self.open.clear()
        self.lost, self.lost_ns = [0] * len(self.lost), 0
        return max(0, told - untold) // (2 * _CALIBRATED)


def _passes_on(code) -> bool:
    """Whether it is a decorator's: it closes over what it calls, and takes whatever that takes."""
    return code.co_flags & _ANYTHING == _ANYTHING and bool(code.co_freevars)


def _moves(call: "Call | None") -> None:
    """What it returns is not all that it is for, nor what those return that it was made in."""
    while call is not None:
        call.function.moves = call.function.is_let_go = True
        call = call.above
