"""Which modules are the roots: those that the loop calls, not those that other modules call.

`nn.Module.__call__` is watched for the first calls only; then the classes of the modules found there get a
`__call__` of their own that times the outermost call, and `nn.Module` is as it was. A criterion of `torch.nn` that
follows a model is left alone: the stretch up to the backward pass is taken for the loss. Instances are never
touched: a hook on an instance would travel with every copy and pickle of the model. Under torch.compile only
the wrapper that it returns is watched, from outside the compiled region.
"""

import time
import types
from _thread import get_ident

import torch
from torch.nn.modules.loss import _Loss

from ..changes import unseen
from ..timeline import FORWARD, LOSS, OPTIMIZER, OTHER

_clock = time.perf_counter_ns

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

    def __init__(self, loop, roots: "dict[type, _Root]", guarded, ended) -> None:
        self.loop = loop
        self.roots = roots
        self.began = guarded("forward", loop.forward_began)
        self.failed = guarded("forward", loop.forward_failed)
        self.ended = guarded("forward", ended)
        self.caught = guarded.caught

    def __reduce__(self):
        return types.SimpleNamespace, (), {"began": bool, "loop": types.SimpleNamespace(quick=0)}


def _stand_in(above, clock: _Clock):
    """A `__call__` that times the outermost call and passes on to that of `above`.

    It is looked up there at each call, because others (torch.fx while it traces) replace `nn.Module.__call__` too.
    An ordinary call (`shortcuts`) is timed here; all that may be special about it is the loop's affair.
    """
    is_compiling, grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled

    def __call__(self, *args, **kwargs):
        # is_compiling comes first: a constant for Dynamo, which then sees nothing of ours.
        if is_compiling():
            return above.__call__(self, *args, **kwargs)
        loop = clock.loop
        if loop.quick != get_ident():
            if not clock.began():
                return above.__call__(self, *args, **kwargs)
        elif loop.inside_forward:
            return above.__call__(self, *args, **kwargs)
        else:
            try:
                line = loop.timeline
                now = _clock()
                line.spent[line.stack[-1]] += now - line.mark
                line.mark = loop.forward_began_ns = now
                line.stack.append(FORWARD)
                line.events += 1
                loop.inside_forward = True
            except Exception as error:
                clock.caught("forward", error)
                return above.__call__(self, *args, **kwargs)
        try:
            result = above.__call__(self, *args, **kwargs)
        except BaseException:
            clock.failed()
            raise
        try:
            line = loop.timeline
            stack = line.stack
            root = clock.roots.get(type(self))
            if (
                loop.quick != get_ident()
                or stack[-1] != FORWARD
                or root is None
                or root.calls & 255 == 255
                or not self.training
                or not grad_enabled()
                or not loop.forwards
            ):
                clock.ended(self, result, (args, kwargs))
                return result
            now = _clock()
            line.spent[FORWARD] += now - line.mark
            line.mark = now
            stack.pop()
            loop.inside_forward = False
            root.calls += 1
            root.spent_ns += now - loop.forward_began_ns
            if root.has_parameters:
                line.micro += 1
            if stack[-1] == OTHER or stack[-1] == OPTIMIZER:
                stack.append(LOSS)
        except Exception as error:
            clock.caught("forward", error)
        return result

    return unseen(__call__)


def _stand_in_for(original, clock: _Clock):
    """The same in place of a `__call__` that the class has itself."""
    stand_in = _stand_in(types.SimpleNamespace(__call__=original), clock)
    stand_in.__wrapped__ = original
    return stand_in


class _Root:
    """A class whose instances the loop calls."""

    __slots__ = ("calls", "has_parameters", "spent_ns")

    def __init__(self, has_parameters: bool) -> None:
        self.has_parameters = has_parameters
        self.calls = 0
        self.spent_ns = 0


class Discovery:
    """Finds root classes and times their calls."""

    def __init__(
        self,
        loop,
        guarded,
        note_autocast,
        evaluated=lambda took_ns, module, arguments, output: None,
        trained=lambda module, arguments: None,
    ) -> None:
        self.loop = loop
        self.concurrency = loop.concurrency
        self.forward_left = guarded("concurrency", loop.concurrency.left)
        self.note_autocast = note_autocast
        self.evaluated = guarded("evaluation", evaluated)
        """Told of forward passes that train nothing ..."""
        self.trained = guarded("passes", trained)
        """... and of the others."""
        self.compiled = False
        self.returned = {False: 0, True: 0}
        """Elements of what a model's first call returned: before torch.compile was called, and after."""
        self.watching = False
        self.module_call = torch.nn.Module.__call__
        self.classes: "dict[type, object]" = {}
        self.found: "dict[type, _Root]" = {}
        self.clock = _Clock(loop, self.found, guarded, self._ended)
        # Without roots every call ends in `_watched`.
        self.watch_clock = _Clock(loop, {}, guarded, self._watched)

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
            trained = any(root.has_parameters for root in self.found.values())
            for kind in self.found:
                # What lies between a model's forward and the backward pass is taken for the loss anyway.
                if not (trained and issubclass(kind, _Loss)):
                    self._patch(kind)

    def retire(self) -> None:
        """No call is timed any more."""
        self.settle()
        for kind in list(self.classes):
            self._unpatch(kind)

    def compiling(self) -> None:
        """torch.compile is about to be called: nothing of ours may be traced."""
        self.compiled = True
        self.retire()
        from torch._dynamo import trace_rules
        from torch._dynamo.eval_frame import OptimizedModule

        if OptimizedModule not in self.classes:
            # Dynamo also looks at what compiled code calls into; our frames are no concern of its.
            trace_rules.add(__package__.rpartition(".")[0])
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
            if own is None:
                above = next(base for base in kind.__mro__[1:] if "__call__" in base.__dict__)
                kind.__call__ = _stand_in(above, self.clock)
            else:
                kind.__call__ = _stand_in_for(own, self.clock)

    def _unpatch(self, kind: type) -> None:
        own = self.classes.pop(kind)
        if own is None:
            del kind.__call__
        else:
            kind.__call__ = own

    def _watched(self, module, result, arguments: tuple) -> None:
        loop = self.loop
        if loop.forwards >= _SETTLED_FORWARDS and loop.optimizer_steps == 0:
            self.settle()
        self._ended(module, result, arguments)

    def _ended(self, module, result, arguments: tuple) -> None:
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
            if root.has_parameters and not self.returned[self.compiled]:
                self.returned[self.compiled] = _elements(result)
        root.calls += 1
        root.spent_ns += took_ns
        if not root.calls & 255:
            self._weigh(kind, root, loop.timeline.step)
        gradients = torch.is_grad_enabled()
        useless = not module.training and gradients and _has_graph(result)
        if self.concurrency.on:
            self.forward_left(ident, module, root.has_parameters, useless)
        if root.has_parameters:
            if module.training and gradients:
                self.trained(module, arguments)
            else:
                self.evaluated(took_ns, module, arguments, result)
        # May end the step, and with it the job: nothing may follow.
        loop.forward_ended(took_ns, root.has_parameters, useless, gradients)

    def _ended_elsewhere(self, ident: int, module, root: "_Root | None", result) -> None:
        if root is None:
            root = _Root(next(module.parameters(), None) is not None)
            if root.has_parameters and self.watching:
                self.found[type(module)] = root
        useless = not module.training and torch.is_grad_enabled() and _has_graph(result)
        self.forward_left(ident, module, root.has_parameters, useless)
        self.concurrency.on_other_thread(ident)

    def _weigh(self, kind: type, root: _Root, step: int) -> None:
        if root.calls > _MANY_CALLS * step and root.spent_ns < _SHORT_NS * root.calls and kind in self.classes:
            self._unpatch(kind)


def _elements(result) -> int:
    """Of the largest tensor; 0 while TorchScript traces, which would write down that somebody asked."""
    if isinstance(result, torch.Tensor):
        return 0 if torch._C._get_tracing_state() else result.numel()
    parts = result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    return max(map(_elements, parts), default=0)


def _has_graph(result) -> bool:
    if isinstance(result, torch.Tensor):
        return result.requires_grad
    if isinstance(result, (list, tuple)) and result:
        return _has_graph(result[0])
    if isinstance(result, dict) and result:
        return _has_graph(next(iter(result.values())))
    return False
