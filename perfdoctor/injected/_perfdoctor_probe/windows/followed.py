"""Follows the calls of the user's own functions on one thread, and of those by which they read files: what they were
given, returned and took.

`sys.setprofile` tells of each call and return, those of built-in functions too. What that takes, and comparing, is
measured and is nobody's time. A function is let go once it is known to be of no interest: it returns nothing, takes
next to no time, or was never given the same twice; it draws random numbers, changes an object that it was given, calls
a module, starts a backward pass or takes a batch from a loader.

Python itself is slower while it tells: loops took 1.6 to 1.8 times as long beyond what telling took, NumPy's operators
1.07 times. So some calls of a function that returns the same are timed with nobody listening. What tells their end is
an object of ours among the variables of their frame, which goes when that does.
"""

import inspect
import sys
import time
from _thread import get_ident

import torch
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .. import procfs
from . import draws, reading
from .content import FILES, LARGEST, Content, NotComparableError, fingerprint, versions
from .followed_calls import Call, Function, moves
from .holdings import asks_for_locals
from .line_clock import awaited

_MOST = 20_000
"""Calls that are looked at, about 40 us each."""
_MOST_BYTES = 1 << 28
"""Of arguments and results that are compared in all: 0.15 s."""
_TRIED = 8
"""Calls after which a function that takes less than `_SHORT_NS` on average is let go: keeping its results saves little,
and what it takes is hard to tell from what watching it does."""
_SHORT_NS = 20_000
_COMPARED = 2
"""Calls with the same arguments whose results are compared before one is timed alone; one more before the next."""
_TIMED = 8
"""Calls of a function that are timed so; all others are compared too."""
_DIFFERENT = 96
"""Calls with other arguments each time, after which a function is let go: of those drawn from a thousand by chance, two
are the same among so many in 99 cases of 100."""
_CALIBRATED, _ROUNDS = 50, 10
"""Calls by which the cost of being told of one is measured, 30 us, and how often: the quickest round counts. A process
that took the CPU for some milliseconds meanwhile made it ten times as dear, and functions of many calls took none."""
_LOCALS = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
_PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_CALL = torch.nn.Module._call_impl.__code__
_COUNTING = "torchmetrics."
_END = "<perfdoctor>"
"""No name that code can use."""
_ANYTHING = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_clock = time.perf_counter_ns
_delay = procfs.thread_delay_ns


class _End:
    """Goes when a frame does."""

    __slots__ = ("call", "follower")

    def __init__(self, follower: "Follower", call: Call) -> None:
        self.follower = follower
        self.call = call

    def __del__(self) -> None:
        try:
            self.follower.ended(self.call)
        except Exception:  # Python would print it
            self.call.function.is_let_go = True


class Follower:
    """Runs from `begin` to `end`, on the thread of both; again and again, where it is asked to."""

    most_bytes, largest, different = _MOST_BYTES, LARGEST, _DIFFERENT

    def __init__(self, sites, loop) -> None:
        self.sites = sites
        self.loop = loop
        self.functions: "dict[object, Function | None]" = {}
        """By code; None for a library's that read no file for the user, and for what is no function or returns more
        than once."""
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
        self.timed: "Call | None" = None
        """The call under way to which nobody listens."""
        self.event_ns = self.began_ns = self.wall_ns = 0
        self.delay_ns = 0
        """For which this thread had waited for a CPU as it was last asked for."""
        self.moving = {
            _CALL,
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
        self.thread = get_ident()
        self.delay_ns = _delay() or 0
        self.began_ns = _clock()
        sys.setprofile(self.told)

    def end(self) -> None:
        """Not any more; if the job has begun to profile meanwhile, that goes on."""
        if sys.getprofile() is self.told:
            sys.setprofile(None)
        self.wall_ns += _clock() - self.began_ns
        self._waited()
        self._count_step()
        self.timed = None
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
                function = self._known(frame)
            if self.loop.timeline.spent is not self.live:
                self._count_step()
            if function is None:
                if self.open and frame.f_code in self.moving:
                    self._meets(frame, self.open[-1])
            elif not function.is_let_go:
                self._called(frame, function)
                return
            elif function.moves and self.open:
                moves(self.open[-1])
        elif event == "return":
            if self.open and self.open[-1].frame is frame:
                self._returned(arg)
                return
        elif event == "c_call" and self.open and draws.draws(arg):
            moves(self.open[-1])
        self.lost[self.loop.timeline.stack[-1]] += self.event_ns
        self.lost_ns += self.event_ns

    def _meets(self, frame, call: Call) -> None:
        """`call` has reached what learns, or evaluates what perhaps learns elsewhere."""
        if not _only_evaluates(frame):
            moves(call)
            return
        with (
            torch._C.DisableTorchFunction()
        ):  # parameters of a lazy module, or of another class, answer in their own way
            call.learned = hash((call.learned, *versions(frame.f_locals["self"])))

    def _called(self, frame, function: Function) -> None:
        began = _clock()
        self._waited()
        caller = self._caller(frame)
        call = Call(
            function,
            self.open[-1] if self.open else None,
            None if caller is None else (caller.f_code, caller.f_lineno),
            self.loop.timeline.stack[-1],
            awaited(self.loop),
        )
        if len(self.calls) < _MOST and self.bytes < self.most_bytes:
            self.calls.append(call)
            try:
                self._look_at_arguments(call, frame)
            except Exception:  # a value of an exotic kind: this call is not compared
                call.key = None
        if self._is_to_be_timed(call):
            self.timed = call
            frame.f_locals[_END] = _End(self, call)
            sys.setprofile(None)
        else:
            call.frame = frame
            self.open.append(call)
        self._lose(began)
        call.lost_ns = self.lost_ns
        call.began_ns = _clock()

    def _is_to_be_timed(self, call: Call) -> bool:
        function = call.function
        # In turns with those whose results are compared.
        due = function.compared.get(call.key, 0) - len(function.alone) >= _COMPARED
        return due and len(function.alone) < _TIMED and not asks_for_locals(function.code)

    def ended(self, call: Call) -> None:
        """The call to which nobody listened has returned, or its frame is gone some time after it has raised."""
        now = _clock()
        if call is not self.timed or get_ident() != self.thread:
            return
        self.timed, call.is_alone = None, True
        self._waited()
        function = call.function
        call.spent_ns = max(0, now - call.began_ns - (self.lost_ns - call.lost_ns))
        call.number = function.returned[call.key]
        if self._has_moved(call):
            moves(call)
        call.forget()
        function.alone.append(call.spent_ns)
        self._count(call)
        # Frames that an exception has left meanwhile have told nobody.
        under_way = {id(frame) for frame in _callers()}
        while self.open and id(self.open[-1].frame) not in under_way:
            self.open.pop().forget()
        if sys.getprofile() is None:
            sys.setprofile(self.told)
        self._lose(now)

    def _look_at_arguments(self, call: Call, frame) -> None:
        given, content = frame.f_locals, Content(of_arguments=True, largest=self.largest)
        for name in call.function.names:
            if call.function.makes and call.made is None:
                call.made = given[name]
                call.function.kind = type(call.made).__name__
            elif name in given:
                content.add(given[name])
        if call.function.reader:
            content.add(reading.versions(list(given.values())))
        self.bytes += content.bytes
        kept = [one for held in content.objects for one in draws.kept_by(held, deepest=1)]
        call.objects = content.objects, fingerprint(content.objects), kept
        call.states = draws.state(), draws.state_of(kept)
        call.key = content.number

    def _returned(self, result) -> None:
        now = _clock()
        self._waited()
        call = self.open.pop()
        call.taken_ns = self.lost_ns - call.lost_ns
        call.spent_ns = max(0, now - call.began_ns - call.taken_ns)
        try:
            self._look_at_result(call, result)
        except NotComparableError:
            call.function.differs = True
        except Exception:  # as for the arguments
            call.key = None
        call.forget()
        self._judge(call)
        if self.open and call.learned:
            self.open[-1].learned = hash((self.open[-1].learned, call.learned))
        self._lose(now)

    def _look_at_result(self, call: Call, result) -> None:
        if call.key is None:
            return
        if self._has_moved(call):
            moves(call)
            return
        if call.function.makes:
            result = call.made
        if result is None:
            raise NotComparableError
        content = Content(largest=self.largest)
        try:
            content.add(result)
        except NotComparableError:
            if not call.function.reader or type(result) in FILES:  # which are read from in turn
                raise
            call.number, call.telling = b"", reading.WHOLE  # the same file, read from the same place on
        else:
            call.number, call.telling = content.number, content.telling
        self.bytes += content.bytes
        if call.learned:
            call.number += repr(call.learned).encode()

    @staticmethod
    def _has_moved(call: Call) -> bool:
        """Whether a generator of random numbers has, or an object that it was given."""
        objects, before, kept = call.objects
        return call.states != (draws.state(), draws.state_of(kept)) or before != fingerprint(objects)

    def _judge(self, call: Call) -> None:
        function = call.function
        if call.key is not None and call.number is not None:
            before = function.returned.setdefault(call.key, call.number)
            function.differs |= before != call.number
            function.compared[call.key] = function.compared.get(call.key, 0) + 1
        self._count(call)

    def _count(self, call: Call) -> None:
        """Let the function go, if nothing comes of it."""
        function = call.function
        function.calls += 1
        function.spent_ns += call.spent_ns
        is_tried, is_known = function.calls >= _TRIED, bool(function.returned)
        function.is_let_go |= (
            function.differs
            or (is_tried and (not is_known or function.spent_ns < _SHORT_NS * function.calls))
            or (function.calls >= self.different and len(function.returned) == function.calls)
        )

    # -- what time it is ----------------------------------------------------------------------------------

    def _known(self, frame) -> "Function | None":
        code, found = frame.f_code, None
        is_function = code.co_flags & _LOCALS == _LOCALS and not code.co_flags & _PAUSES
        if is_function and not code.co_name.startswith("<"):
            if not self.sites.is_library(code.co_filename):
                found = Function(code)
            elif self._caller(frame) is not None and reading.reads(frame):
                found = Function(code, reading.name(frame))
        self.functions[code] = found
        return found

    def _caller(self, frame):
        """The user's frame that has called this one; None where a library's has."""
        caller = frame.f_back
        while caller is not None and _passes_on(caller.f_code):
            caller = caller.f_back
        return None if caller is None or self.sites.is_library(caller.f_code.co_filename) else caller

    def _count_step(self) -> None:
        for part, ns in enumerate(self.live):
            self.totals[part] += ns
        self.live = self.loop.timeline.spent

    def _waited(self) -> None:
        """What the job has waited for a CPU since we last looked is nobody's time either: two steps are few."""
        waited = max(0, (_delay() or 0) - self.delay_ns)
        self.lost[self.loop.timeline.stack[-1]] += waited
        self.lost_ns += waited

    def _lose(self, began: int) -> None:
        self.delay_ns = _delay() or 0
        took = _clock() - began + self.event_ns
        self.lost[self.loop.timeline.stack[-1]] += took
        self.lost_ns += took

    def _cost_ns(self) -> int:
        """Of being told of a call, or of its end, while a function is followed."""
        self.open.append(Call(Function(self._cost_ns.__code__), None, None, 0, -1))
        told = min(_calls_ns(self.told) for _ in range(_ROUNDS))
        untold = min(_calls_ns(None) for _ in range(_ROUNDS))
        self.open.clear()
        self.lost, self.lost_ns = [0] * len(self.lost), 0
        return max(0, told - untold) // (2 * _CALIBRATED)


def _calls_ns(listener) -> int:
    """What calls take of which `listener` is told, or nobody."""
    numbers = [0] * _CALIBRATED
    sys.setprofile(listener)
    began = _clock()
    for _ in numbers:
        len(numbers)
    took = _clock() - began
    sys.setprofile(None)
    return took


def _callers():
    """Frames of this thread, from the caller's caller's caller on."""
    frame = sys._getframe(3)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _only_evaluates(frame) -> bool:
    """Whether it is the call of a module that is in evaluation mode, without gradients: it neither learns nor draws
    random numbers. A metric of torchmetrics is one that counts."""
    if frame.f_code is not _CALL or torch.is_grad_enabled():
        return False
    module = frame.f_locals["self"]
    return not any(one.training or type(one).__module__.startswith(_COUNTING) for one in module.modules())


def _passes_on(code) -> bool:
    """Whether it is a decorator's: it closes over what it calls, and takes whatever that takes."""
    return code.co_flags & _ANYTHING == _ANYTHING and bool(code.co_freevars)
