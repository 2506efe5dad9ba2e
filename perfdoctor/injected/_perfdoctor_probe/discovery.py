"""Which modules are the roots: those that the loop calls, not those that other modules call.

`nn.Module.__call__` is watched for the first calls only; then the classes of the modules found there get a
`__call__` of their own that times the outermost call, and `nn.Module` is as it was. Instances are never
touched: a hook on an instance would travel with every copy and pickle of the model. Under torch.compile only
the wrapper that it returns is watched, from outside the compiled region.
"""

import types
from _thread import get_ident

import torch

_SETTLED_STEPS = 3
_SETTLED_FORWARDS = 8
_MANY_CALLS = 24
_SHORT_NS = 60_000
"""Root calls that are this many per step and this short would cost more to time than they tell: layers that the
loop calls one by one. One call costs about 3 us to time."""


class _Clock:
    """All that a stand-in knows of the probe.

    A class of `__main__` is pickled by value by cloudpickle (Ray, joblib), stand-in included; what it takes
    along is then an object of the standard library that says "do not time".
    """

    def __init__(self, began, failed, ended) -> None:
        self.began = began
        self.failed = failed
        self.ended = ended

    def __reduce__(self):
        return types.SimpleNamespace, (), {"began": bool}


def _stand_in(kind: type, clock: _Clock):
    """A `__call__` for `kind` that times the outermost call and passes on to the next class in line.

    Looked up there at each call, because others (torch.fx while it traces) replace `nn.Module.__call__` too.
    """
    is_compiling = torch.compiler.is_dynamo_compiling
    above = next(base for base in kind.__mro__[1:] if "__call__" in base.__dict__)

    def __call__(self, *args, **kwargs):
        # is_compiling comes first: a constant for Dynamo, which then sees nothing of ours.
        if is_compiling() or not clock.began():
            return above.__call__(self, *args, **kwargs)
        try:
            result = above.__call__(self, *args, **kwargs)
        except BaseException:
            clock.failed()
            raise
        clock.ended(self, result)
        return result

    return __call__


def _stand_in_for(original, clock: _Clock):
    """The same in place of a `__call__` that the class has itself."""
    is_compiling = torch.compiler.is_dynamo_compiling

    def __call__(self, *args, **kwargs):
        if is_compiling() or not clock.began():
            return original(self, *args, **kwargs)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            clock.failed()
            raise
        clock.ended(self, result)
        return result

    __call__.__wrapped__ = original
    return __call__


class _Root:
    """A class whose instances the loop calls."""

    __slots__ = ("calls", "has_parameters", "spent_ns")

    def __init__(self, has_parameters: bool) -> None:
        self.has_parameters = has_parameters
        self.calls = 0
        self.spent_ns = 0


class Discovery:
    """Finds root classes and times their calls."""

    def __init__(self, loop, guarded, note_autocast) -> None:
        self.loop = loop
        self.concurrency = loop.concurrency
        self.forward_left = guarded("concurrency", loop.concurrency.left)
        self.note_autocast = note_autocast
        began, failed = guarded("forward", loop.forward_began), guarded("forward", loop.forward_failed)
        self.clock = _Clock(began, failed, guarded("forward", self._ended))
        self.watch_clock = _Clock(began, failed, guarded("forward", self._watched))
        self.compiled = False
        self.watching = False
        self.module_call = torch.nn.Module.__call__
        self.classes: "dict[type, object]" = {}
        self.found: "dict[type, _Root]" = {}

    # -- watching nn.Module -------------------------------------------------------------------------------

    def watch(self) -> None:
        """Note the classes of outermost modules from now on."""
        if self.watching or self.compiled:
            return
        self.watching = True
        torch.nn.Module.__call__ = _stand_in_for(self.module_call, self.watch_clock)

    def settle(self) -> None:
        """Stop watching `nn.Module`; time the classes found."""
        if not self.watching:
            return
        self.watching = False
        torch.nn.Module.__call__ = self.module_call
        if not self.compiled:
            for kind in self.found:
                self._patch(kind)

    def compiling(self) -> None:
        """torch.compile is about to be called: nothing of ours may be traced."""
        self.compiled = True
        self.settle()
        for kind in list(self.classes):
            self._unpatch(kind)
        from torch._dynamo import trace_rules
        from torch._dynamo.eval_frame import OptimizedModule

        if OptimizedModule not in self.classes:
            # Dynamo also looks at what compiled code calls into; our frames are no concern of its.
            trace_rules.add(__package__)
        self._patch(OptimizedModule)

    def module_compiled(self, module) -> None:
        """`module.compile()` returned: its `__call__` stays outside the compiled region."""
        kind = type(module)
        if not any(type(inner) is kind for inner in module.modules() if inner is not module):
            self._patch(kind)

    def at_step(self, optimizer_steps: int) -> None:
        """Called after each optimizer step until the roots are settled."""
        if optimizer_steps == 1:
            self.watch()
        elif optimizer_steps == _SETTLED_STEPS:
            self.settle()

    def data_parallel(self) -> bool:
        """Whether a root is an nn.DataParallel."""
        return any(issubclass(kind, torch.nn.DataParallel) for kind in self.found)

    # -- timing -------------------------------------------------------------------------------------------

    def _patch(self, kind: type) -> None:
        if kind not in self.classes:
            own = self.classes[kind] = kind.__dict__.get("__call__")
            kind.__call__ = _stand_in(kind, self.clock) if own is None else _stand_in_for(own, self.clock)

    def _unpatch(self, kind: type) -> None:
        own = self.classes.pop(kind)
        if own is None:
            del kind.__call__
        else:
            kind.__call__ = own

    def _watched(self, module, result) -> None:
        loop = self.loop
        if loop.forwards >= _SETTLED_FORWARDS and loop.optimizer_steps == 0:
            self.settle()
        self._ended(module, result)

    def _ended(self, module, result) -> None:
        loop = self.loop
        kind = type(module)
        root = self.found.get(kind)
        ident = get_ident()
        if loop.thread != ident:
            self._ended_elsewhere(ident, module, root, result)
            return
        took_ns = loop.forward_left()
        if root is None:
            root = self.found[kind] = _Root(next(module.parameters(), None) is not None)
            self.note_autocast()
        root.calls += 1
        root.spent_ns += took_ns
        if not root.calls & 255:
            self._weigh(kind, root, loop.timeline.step)
        useless = not module.training and torch.is_grad_enabled() and _has_graph(result)
        if self.concurrency.on:
            self.forward_left(ident, module, root.has_parameters, useless)
        # May end the step, and with it the job: nothing may follow.
        loop.forward_ended(took_ns, root.has_parameters, useless)

    def _ended_elsewhere(self, ident: int, module, root: "_Root | None", result) -> None:
        if root is None:
            root = _Root(next(module.parameters(), None) is not None)
            if root.has_parameters and self.watching:
                self.found[type(module)] = root
        useless = not module.training and torch.is_grad_enabled() and _has_graph(result)
        self.forward_left(ident, module, root.has_parameters, useless)

    def _weigh(self, kind: type, root: _Root, step: int) -> None:
        if root.calls > _MANY_CALLS * step and root.spent_ns < _SHORT_NS * root.calls and kind in self.classes:
            self._unpatch(kind)


def _has_graph(result) -> bool:
    if isinstance(result, torch.Tensor):
        return result.requires_grad
    if isinstance(result, (list, tuple)) and result:
        return _has_graph(result[0])
    if isinstance(result, dict) and result:
        return _has_graph(next(iter(result.values())))
    return False
