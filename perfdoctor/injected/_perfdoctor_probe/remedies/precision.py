"""The type that the model computes in, changed at its border: what the loop hands in and gets back keeps its type.

A real fix would convert the data once, where it is made; here each batch is converted, so a trial shows a little
less than the fix gives.
"""

import contextlib
import functools

import torch
from torch.optim import Optimizer

from .base import Remedy, UnsuitableError, living

_OTHER_FLOATS = (torch.float64, torch.float16, torch.bfloat16)


def converted(value, kind):
    """`value` with its floating-point tensors as `kind`, in the containers that modules pass around."""
    if isinstance(value, torch.Tensor):
        return value.to(kind) if value.is_floating_point() and value.dtype != kind else value
    if type(value) in (list, tuple):
        return type(value)(converted(item, kind) for item in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(converted(item, kind) for item in value))
    if isinstance(value, dict):
        changed = {key: converted(item, kind) for key, item in value.items()}
        if type(value) is dict:
            return changed
        # Such as a transformers ModelOutput, which is a dataclass as well: changed in place, it is a fresh one.
        for key, item in changed.items():
            if item is not value[key]:
                value[key] = item
    return value


def border(probe) -> list:
    """The modules that the loop itself calls and that hold parameters. Raises `UnsuitableError`."""
    if probe.discovery.compiled:
        raise UnsuitableError("the model is compiled, and would be compiled anew")
    kinds = [kind for kind, root in probe.discovery.found.items() if root.has_parameters]
    modules = living(kinds) if kinds else []
    inside = {id(inner) for module in modules for inner in module.modules() if inner is not module}
    roots = [module for module in modules if id(module) not in inside and next(module.parameters(), None) is not None]
    if not roots:
        raise UnsuitableError("the loop calls no module with parameters")
    return roots


class _AtTheBorder(Remedy):
    """Hooks before and after the forward of each root module."""

    settle = 3
    depth = 0

    def __deepcopy__(self, memo: dict) -> "_AtTheBorder":
        # A copy of the model, such as an average of its weights, has the same hooks.
        return self

    def hook(self, roots: list) -> None:
        for module in roots:
            self.changes.when_undone(module.register_forward_pre_hook(self.enter, with_kwargs=True).remove)
            # Also after an exception: what `enter` set must not stay. On one line, so that none can be left behind.
            add = functools.partial(module.register_forward_hook, with_kwargs=True, always_call=True)
            self.changes.when_undone(add(self.leave).remove)

    def around(self):
        """A context for the outermost call."""
        return contextlib.nullcontext()

    def enter(self, module, args, kwargs):
        """What is returned replaces the arguments."""
        if not self.depth:
            self.context = self.around()
            self.context.__enter__()
        self.depth += 1

    def leave(self, module, args, kwargs, output):
        """What is returned replaces the output."""
        self.depth -= 1
        if not self.depth:
            self.context.__exit__(None, None, None)


class _OnCopies(_AtTheBorder):
    """What the steps in between compute goes into copies of the model's and the optimizer's tensors. Afterwards the
    job has its own back, bit for bit."""

    def copied(self, tensor):
        """A copy of another kind."""
        raise NotImplementedError

    def exchange(self, tensors: list) -> None:
        """Put copies in the place of parameters and buffers, of their gradients and of the optimizers' state."""
        self.tensors = [(tensor, tensor.data, tensor.grad) for tensor in tensors]
        self.states = []
        for tensor, data, gradient in self.tensors:
            # Without a gradient first: it must be of the type of its tensor.
            tensor.grad = None
            tensor.data = self.copied(data)
            tensor.grad = None if gradient is None else self.copied(gradient)
        numbers = {id(tensor) for tensor in tensors}
        for optimizer in living((Optimizer,)):
            for parameter, state in optimizer.state.items():
                if id(parameter) not in numbers:
                    continue
                for name, value in state.items():
                    if isinstance(value, (torch.Tensor, int, float)):
                        self.states.append((state, name, value))
                    if isinstance(value, torch.Tensor):
                        state[name] = self.copied(value)

    def withdraw(self) -> None:
        super().withdraw()
        for tensor, data, gradient in getattr(self, "tensors", ()):
            tensor.grad = None
            tensor.data = data
            tensor.grad = gradient
        for state, name, value in getattr(self, "states", ()):
            state[name] = value
        self.tensors, self.states = [], []


def _alone() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise UnsuitableError("several ranks exchange gradients as the model has them")


def _tensors(roots: list) -> list:
    return list({id(t): t for module in roots for t in (*module.parameters(), *module.buffers())}.values())


class Float32(_OnCopies):
    """Parameters, buffers, optimizer state and inputs in float32, outside of autocast."""

    def apply(self) -> None:
        _alone()
        roots = border(self.probe)
        tensors = _tensors(roots)
        wide = [tensor for tensor in tensors if tensor.dtype in _OTHER_FLOATS]
        if not wide and not self.probe.facts.autocast:
            raise UnsuitableError("the model's parameters are float32, so the other type comes from within the model")
        self.kind = wide[0].dtype if wide else torch.float32
        # All of them where any is converted: what is kept must fit together, down to a count of batches.
        self.exchange(tensors if wide else [])
        self.hook(roots)

    def copied(self, tensor):
        return tensor.float() if tensor.dtype in _OTHER_FLOATS else tensor.clone()

    @contextlib.contextmanager
    def around(self):
        autocast = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
        default = torch.get_default_dtype()
        for device in autocast:
            torch.set_autocast_enabled(device, False)
        torch.set_default_dtype(torch.float32)
        yield
        torch.set_default_dtype(default)
        for device in autocast:
            torch.set_autocast_enabled(device, True)

    def enter(self, module, args, kwargs):
        super().enter(module, args, kwargs)
        return converted(args, torch.float32), converted(kwargs, torch.float32)

    def leave(self, module, args, kwargs, output):
        super().leave(module, args, kwargs, output)
        return converted(output, self.kind)


class Autocast(_AtTheBorder):
    """The forward of the model under `torch.autocast`; what comes out is float32 again."""

    def apply(self) -> None:
        if self.probe.facts.autocast:
            raise UnsuitableError("the job uses autocast already")
        roots = border(self.probe)
        self.device = next(roots[0].parameters()).device.type
        self.hook(roots)

    def around(self):
        return torch.autocast(self.device, torch.bfloat16)

    def leave(self, module, args, kwargs, output):
        super().leave(module, args, kwargs, output)
        return converted(output, torch.float32)


class ChannelsLast(_OnCopies):
    """Images and the weights of convolutions with their channels last in memory."""

    settle = 4

    def apply(self) -> None:
        _alone()
        roots = border(self.probe)
        tensors = _tensors(roots)
        images = [tensor for tensor in tensors if tensor.dim() == 4 and min(tensor.shape) > 0]
        if not images:
            raise UnsuitableError("the model has no weights of four dimensions")
        if all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in images):
            raise UnsuitableError("already set")
        self.exchange(tensors)
        self.hook(roots)

    def copied(self, tensor):
        return tensor.clone(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor.clone()

    def enter(self, module, args, kwargs):
        super().enter(module, args, kwargs)
        return _channels_last(args), _channels_last(kwargs)


def _channels_last(value):
    """Tensors of four dimensions with the second one last in memory, a level deep."""
    if isinstance(value, torch.Tensor):
        return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value
    if type(value) in (list, tuple):
        return type(value)(_channels_last(item) for item in value)
    return {key: _channels_last(item) for key, item in value.items()} if type(value) is dict else value
