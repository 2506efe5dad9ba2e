"""What modes of the job's own take in a few steps: a clock around their handlers, and one around the operator itself,
as a mode of ours sees it that lies below theirs.

The difference is theirs. What it takes to come into a handler of Python's at all is in it once: into ours, which stands
in for theirs, since a clock in a handler starts after that. No mode is taken off, and each is asked what it would be.
A default device asks nothing but whether a function makes tensors: its calls are counted, and one is timed afterwards.
"""

import sys
import time
import types
from _thread import get_ident

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

from ..changes import Changes
from ..hooks.modes import dispatch_modes, function_modes
from ..rows import milliseconds
from . import with_blocks

_STEPS = 5
"""With a mode on, at most: medians are taken."""
_MOST = 40
"""Steps in all: one that is on in every tenth is seen a few times."""
_LIMIT_NS = 5_000_000_000
"""After that, one step with it is enough ..."""
_MOST_NS = 20_000_000_000
"""... and after that, none."""
_ROUNDS, _CALLS = 7, 300
_BESIDES = {
    "_FlopCounterMode": (
        ("torch.utils.flop_counter", "FlopCounterMode", ("__enter__", "__exit__")),
        ("torch.utils.module_tracker", "ModuleTracker", ("_fw_pre_hook", "_fw_post_hook")),
    )
}
"""Of a mode's class, what else belongs to it: it is called between operators."""
_WORK = None
"""In the place of a class: the operator itself."""
_clock = time.perf_counter_ns


class _Clock:
    """Time by class, each without what is called from inside."""

    def __init__(self) -> None:
        self.stacks: "dict[int, list]" = {}
        """Of each thread: class, function, nanoseconds of what was called inside, when it began, whether the function
        itself has been called."""
        self.calls: "dict[type, int]" = {}
        self.ns: "dict[type, int]" = {}
        self.besides: "dict[type, int]" = {}
        """Operators that a mode calls on its own: ours below hears of them too, and would not be there."""
        self.in_python: "dict[type, int]" = {}
        """Of the calls, those of functions that Python itself passes on."""

    def enter(self, kind, function) -> None:
        self.stacks.setdefault(get_ident(), []).append([kind, function, 0, _clock(), False])

    def leave(self) -> None:
        stack = self.stacks[get_ident()]
        kind, _, inside, began, _ = stack.pop()
        took = _clock() - began
        if stack:
            stack[-1][2] += took
        if kind is not _WORK:
            self.ns[kind] = self.ns.get(kind, 0) + took - inside

    def count(self, kind, function) -> None:
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if type(function) is types.FunctionType:
            self.in_python[kind] = self.in_python.get(kind, 0) + 1

    def is_handling(self) -> bool:
        """Whether a handler is at work on this thread."""
        return any(function is not None for _, function, *_ in self.stacks.get(get_ident(), ()))

    def is_work(self, function) -> bool:
        """Whether this is the function that the handler was asked about; what else it calls is its own cost."""
        stack = self.stacks.get(get_ident())
        if not stack or stack[-1][0] is _WORK:
            return False
        kind, asked, *_, called = stack[-1]
        if not called and (asked is function or asked == function):
            stack[-1][4] = True
            return True
        self.besides[kind] = self.besides.get(kind, 0) + 1
        return False


def _passed(clock: _Clock, function, args, kwargs):
    if not clock.is_work(function):
        return function(*args, **(kwargs or {}))
    clock.enter(_WORK, function)
    try:
        return function(*args, **(kwargs or {}))
    finally:
        clock.leave()


class _BelowDispatch(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self.clock = clock

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # As in `call_sites`: else torch imports Dynamo.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _passed(self.clock, func, args, kwargs)


class _BelowFunction(TorchFunctionMode):
    def __init__(self, clock: _Clock) -> None:
        self.clock = clock

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return _passed(self.clock, func, args, kwargs)


_STACKS = {
    "dispatch": (
        dispatch_modes,
        lambda: torch._C._pop_torch_dispatch_stack(None),
        lambda mode: torch._C._push_on_torch_dispatch_stack(mode),
    ),
    "function": (
        function_modes,
        lambda: torch._C._pop_torch_function_stack(),
        lambda mode: torch._C._push_on_torch_function_stack(mode),
    ),
}
"""What is on it, the outermost first, and how to take off the innermost and put one on."""


def _put_below(kind: str, ours) -> None:
    modes, pop, push = _STACKS[kind]
    taken = [pop() for _ in modes()]
    # Of a default device torch asserts that it is the outermost of all.
    if taken and isinstance(taken[-1], DeviceContext):
        push(taken.pop())
    push(ours)
    for mode in reversed(taken):
        push(mode)


def _take_from_below(kind: str, ours) -> None:
    modes, pop, push = _STACKS[kind]
    if not any(mode is ours for mode in modes()):
        return
    above = []
    while (mode := pop()) is not ours:
        above.append(mode)
    for mode in reversed(above):
        push(mode)


class ModesWindow:
    """Opened at one step boundary, closed at another."""

    name = "modes"
    microbenchmark = final_microbenchmark = None
    steps = 1

    def __init__(self, sites, compiled: bool, kinds: "dict[type, str]") -> None:
        """`kinds`: the classes of modes, and whether each is a `dispatch` or a `function` mode."""
        self.sites = sites
        self.compiled = compiled
        self.kinds = {kind: of for kind, of in kinds.items() if _is_plain(kind, of)}
        self.clock = _Clock()
        self.changes = Changes()
        self.below: "dict[str, object]" = {}
        self.sites_of: "dict[type, int]" = {}
        self.took: "dict[type, list[int]]" = {kind: [] for kind in self.kinds}
        """Nanoseconds in each step with some mode on."""
        self.before: "tuple[int, dict]" = (0, {})

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        if self.compiled:
            return "the job uses torch.compile, and a mode is traced with it"
        if any(
            isinstance(getattr(mode, "_mode_key", None), torch._C._TorchDispatchModeKey) for mode in dispatch_modes()
        ):
            return "a mode that torch traces with is around the steps"
        return ""

    def open(self) -> None:
        self.inference = torch.is_inference_mode_enabled()
        self.opened_ns = _clock()
        self.around = {type(mode) for mode in (*dispatch_modes(), *function_modes())}
        for kind, of in self.kinds.items():
            if not issubclass(kind, DeviceContext) and of not in self.below:
                self.below[of] = (_BelowDispatch if of == "dispatch" else _BelowFunction)(self.clock)
        try:
            for of, ours in self.below.items():
                _put_below(of, ours)
            for kind, of in self.kinds.items():
                self._watch(kind, f"__torch_{of}__")
        except Exception:  # a torch without something of this
            self.abandon()
            raise

    def _watch(self, kind: type, handler: str) -> None:
        timed = _counted if issubclass(kind, DeviceContext) else _timed
        self.changes.put(kind, handler, timed(self.clock, kind, getattr(kind, handler)))
        self.changes.put(kind, "__enter__", self._noting(kind, kind.__enter__))
        for module, name, methods in _BESIDES.get(kind.__name__, ()):
            owner = getattr(sys.modules[module], name)
            for method in methods:
                self.changes.put(owner, method, _timed_besides(self.clock, kind, getattr(owner, method)))

    def _noting(self, kind: type, original):
        def __enter__(mode):
            if not self.clock.is_handling() and kind not in self.sites_of:
                self.sites_of[kind] = self.sites.here()
            return original(mode)

        return __enter__

    def stays(self, steps: int) -> bool:
        """At each boundary: until there are enough steps with a mode on."""
        calls, before = self.before
        self.before = sum(self.clock.calls.values()), dict(self.clock.ns)
        if self.before[0] > calls:
            for kind, took in self.took.items():
                took.append(self.clock.ns.get(kind, 0) - before.get(kind, 0))
        on = max(map(len, self.took.values()), default=0)
        spent = _clock() - self.opened_ns
        return on < (1 if spent > _LIMIT_NS else _STEPS) and steps < _MOST and spent < _MOST_NS

    def closable(self) -> bool:
        """Ours may lie below others; leaving inference mode restores the dispatch keys as it found them, ours too."""
        return torch.is_inference_mode_enabled() == self.inference and not self.clock.is_handling()

    def is_gone(self) -> bool:
        """Whether ours have ended with their thread, whose number this one has got."""
        gone = any(all(mode is not ours for mode in _STACKS[of][0]()) for of, ours in self.below.items())
        if gone:
            self.abandon()
        return gone

    def abandon(self) -> None:
        """Take ours away."""
        self.changes.take_back()
        for of, ours in self.below.items():
            _take_from_below(of, ours)

    def close(self, steps: int) -> dict:
        """What each kind took in each step with some mode on."""
        self.abandon()
        on = max(map(len, self.took.values()), default=0)
        each = {of: _below_ns(of, ours) for of, ours in self.below.items()}
        found = []
        for kind, of in self.kinds.items():
            calls = self.clock.calls.get(kind, 0)
            if not calls:
                continue
            is_device = issubclass(kind, DeviceContext)
            if is_device:
                in_python = self.clock.in_python.get(kind, 0)
                c_ns, python_ns = _device_call_ns()
                times = [((calls - in_python) * c_ns + in_python * python_ns) / on]
            else:
                ours_ns = self.clock.besides.get(kind, 0) / on * each[of]
                times = [max(0, ns - ours_ns) for ns in self.took[kind]]
            found.append(
                {
                    "name": kind.__qualname__.lstrip("_"),
                    "module": kind.__module__,
                    "kind": "device" if is_device else of,
                    "calls_per_step": calls / on,
                    "ms": [milliseconds(ns) for ns in times],
                    "site": self._site(kind),
                }
            )
        return {"steps": steps, "on": on, "modes": found}

    def _site(self, kind: type) -> int:
        """Where it is entered, by what was seen; else by the source, of what was around all steps."""
        if kind in self.sites_of or kind not in self.around:
            return self.sites_of.get(kind, -1)
        if issubclass(kind, DeviceContext):
            return with_blocks.opening(self.sites, "device", "set_default_device")
        return with_blocks.opening(self.sites, kind.__name__.lstrip("_"))


def _is_plain(kind: type, of: str) -> bool:
    """Whether its handler is an ordinary method, which a stand-in can call."""
    return isinstance(getattr(kind, f"__torch_{of}__", None), types.FunctionType)


def _timed(clock: _Clock, kind: type, original):
    """A handler, and how long it takes."""

    def handler(mode, func, *args, **kwargs):
        clock.count(kind, func)
        clock.enter(kind, func)
        try:
            return original(mode, func, *args, **kwargs)
        finally:
            clock.leave()

    return handler


def _counted(clock: _Clock, kind: type, original):
    """The same, counted only."""

    def handler(mode, func, *args, **kwargs):
        clock.count(kind, func)
        return original(mode, func, *args, **kwargs)

    return handler


def _timed_besides(clock: _Clock, kind: type, original):
    """A method that belongs to a mode, and how long it takes."""

    def method(*args, **kwargs):
        clock.enter(kind, None)
        try:
            return original(*args, **kwargs)
        finally:
            clock.leave()

    return method


def _device_call_ns() -> "tuple[float, float]":
    """What a call of torch takes longer under a default device: one that C++ passes on, and one that Python does."""
    mode = DeviceContext(torch.device("cpu"))
    return _longer_ns(torch.neg, "function", mode), _longer_ns(torch.nn.functional.silu, "function", mode)


def _below_ns(of: str, ours) -> float:
    """What a call takes longer with ours below, which has nothing to time."""
    return _longer_ns(torch.neg, of, ours)


def _longer_ns(function, of: str, mode) -> float:
    """What a call of a function takes longer under a mode of torch's or ours, on a tensor of our own: the best of some
    rounds. The job's modes are away meanwhile, and hear nothing of it."""
    taken = {kind: [pop() for _ in modes()] for kind, (modes, pop, _) in _STACKS.items()}
    try:
        x = torch.ones(1)
        plain_ns = min(_repeated(function, x) for _ in range(_ROUNDS))
        _put_below(of, mode)
        try:
            return max(0, min(_repeated(function, x) for _ in range(_ROUNDS)) - plain_ns) / _CALLS
        finally:
            _take_from_below(of, mode)
    finally:
        for kind, modes in taken.items():
            for one in reversed(modes):
                _STACKS[kind][2](one)


def _repeated(function, x) -> int:
    began = _clock()
    for _ in range(_CALLS):
        function(x)
    return _clock() - began
