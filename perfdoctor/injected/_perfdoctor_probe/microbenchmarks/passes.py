"""The job's own forward and backward, run again with its inputs repeated: what a larger batch really takes.

Calls of root modules are noted in the operator window and made again after the job's last step. Whatever they change
is put back: buffers, attributes of the modules, generators. Gradients are returned, never accumulated.
"""

import contextlib
import math
import time
import warnings
import weakref
from typing import Any, NamedTuple

import torch

from .. import procfs
from . import replay
from .checkpointing import NotReentrant
from .inputs import NotRepeatableError, batch_of, each, size_of, tensors_in
from .padding import are_sequences, needed
from .state import State

_CALLS = 4
"""Calls that differ in module or shapes; sequences of eight lengths are told by four of them."""
_INPUT_BYTES = 1 << 26
_HELD_BYTES = 1 << 26
"""Of parameters and buffers of a module that is held until the end: a job of several rounds makes a new one in each."""
_CONSIDERED = 24
"""Passes after the window whose sizes are looked at, where each step makes one."""
_EVERY = 3
"""Of these, one in so many is kept, where its shapes are new, or where its sequences may have other padding."""
_PADDED_BYTES = 1 << 22
"""Of inputs that are kept for their padding: copying them takes a millisecond."""
_MEMORY_PART = 0.25
"""Of the memory that is free, for what a forward pass keeps for its backward pass, at most ..."""
_MOST_BYTES = 1 << 30
"""... and no more than that."""
_FACTORS = (1, 2, 4)
_LIMIT_NS = 1_000_000_000
"""For all calls together. A first round of all factors, and one that counts, must fit; else four times the batch is
left out."""
_STRETCH = 3
"""Two rounds of all ways may take so many times the limit: a job of steps of a second waited for each of them, and has
as much to lose. What channels last would save a network of 0.6 s a step, 1.6x, was not tried before."""
_LONG_MS = 1500.0
"""Operators of a pass, from where on not even two rounds of one way fit."""
_OF_THE_MODEL = {("transformers.modeling_utils", "make_inputs_require_grads")}
"""Hooks, by module and name, that are part of what the model computes, and tell nobody of it."""
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class PassMicrobenchmark:
    """The calls of a few steps."""

    def __init__(self) -> None:
        self.calls: "dict[tuple, _Call]" = {}
        self.missing = "no call of a module was seen that a backward pass follows"
        self.recomputes = False
        """Modules are called again in the backward pass."""
        self.sizes: "list[int]" = []
        """Numbers in the inputs of later passes."""
        self.later: "list[tuple[tuple, _Call]]" = []
        """Some of those, with their shapes."""

    def note(self, module, args: tuple, named: dict) -> None:
        """A root module is about to be called."""
        if not torch.is_grad_enabled() or next((p for p in module.parameters() if p.requires_grad), None) is None:
            return
        key = _key(module, args, named)
        if key in self.calls:
            self.calls[key].count += 1
        elif len(self.calls) < _CALLS:
            self.calls[key] = _Call(module, (args, named))

    def keep(self, operators_ms: float, batched: bool = True) -> None:
        """The window is closed: copy the inputs, which nobody may see while it is open. `operators_ms`: of a step.
        `batched`: whether they must be a batch, of which there could be more."""
        try:
            if operators_ms > _LONG_MS * max(1, sum(call.count for call in self.calls.values())):
                raise NotRepeatableError("a pass takes too long for it")
            for call in self.calls.values():
                call.keep(batched)
                call.look_for_sequences()
        except Exception as error:
            self.missing = str(error)
            self.calls = {}

    def share_inputs(self, other: "PassMicrobenchmark") -> None:
        """In place of `keep`: those of another one's only call, which are the same, and were kept."""
        if not other.calls:
            self.calls = {}
        for call, kept in zip(self.calls.values(), other.calls.values()):
            call.share_inputs(kept)

    def consider(self, module, args: tuple, named: dict) -> None:
        """A training pass after the window has just ended. Where sequences differ from batch to batch, the window may
        have seen a short one: of all the one in the middle is to stand for them."""
        if len(self.sizes) >= _CONSIDERED or len(self.calls) != 1 or torch._C._len_torch_dispatch_stack():
            return
        ((first, call),) = self.calls.items()
        if id(module) != first[0] or call.count != 1:
            return
        key = _key(module, args, named)
        self.sizes.append(_numbers(key))
        is_new = key != first and all(key != other for other, _ in self.later)
        if (is_new or (key == first and call.may_be_padded)) and not len(self.sizes) % _EVERY:
            call = _Call(module, (args, named))
            try:
                call.keep()
            except Exception:  # too large, or of an exotic kind: the first one stands for all
                self.sizes = [0] * _CONSIDERED
                self.later = []
            else:
                self.later.append((key, call))

    def _settle(self) -> None:
        """For the pass of middle size, of those that were kept; of those with the same shapes, by what they need."""
        if not self.later:
            return
        kept, self.later = [*self.calls.items(), *self.later], []
        if len({key for key, _ in kept}) > 1:
            sizes, all_sizes = [_numbers(key) for key, _ in kept], self.sizes
        else:
            sizes = all_sizes = [needed(list(tensors_in(call.inputs))) for _, call in kept]
        middle = sorted(all_sizes)[len(all_sizes) // 2]
        self.calls = dict([min(zip(sizes, kept), key=lambda pair: abs(pair[0] - middle))[1]])

    def timings(self) -> dict:
        """Milliseconds of all these calls, forward and backward, by how often the inputs are repeated; or why there are
        none."""
        times, missing = self._all(lambda call: call.timed(_LIMIT_NS // len(self.calls)))
        if missing:
            return missing
        longest = max(zip(times, self.calls.values()), key=lambda pair: pair[0][0] * pair[1].count)[1]
        return {"batch": longest.batch, "times": list(zip(_FACTORS, self._sums(times)))}

    def without(self, ways: dict, clock=None, limit_ns: "int | None" = None, of=min) -> dict:
        """Milliseconds of all these calls as they are, `now_ms`, and each way; or why there are none. A way is what
        makes a `Way` for a call and its module. `clock` and `of` as for `replay.in_turns`."""
        part_ns = (limit_ns or _LIMIT_NS) // max(1, len(self.calls))
        times, missing = self._all(lambda call: call.timed_without(list(ways.values()), part_ns, clock, of))
        return missing or dict(zip(("now_ms", *(f"{name}_ms" for name in ways)), self._sums(times)))

    def saved_bytes(self) -> "int | None":
        """What all these calls keep for their backward passes; None where that is more than there is room for."""
        room = int(_MEMORY_PART * procfs.available_bytes())
        found, missing = self._all(lambda call: call.saved_bytes(room))
        return None if missing or sum(found) > room else sum(found)

    def keeps_state(self) -> bool:
        """Whether a call leaves tensors behind in the modules, such as a neuron's charge, which the next one may need.
        What norms keep for evaluation is none of these; True where it could not be seen."""
        found, missing = self._all(lambda call: call.keeps_state())
        return bool(missing) or any(found)

    def _all(self, timed) -> "tuple[list, dict]":
        """What `timed` says of each call, or why there is nothing."""
        if not self.calls:
            return [], {"missing": self.missing}
        self._settle()
        try:
            with warnings.catch_warnings(), NotReentrant():
                warnings.simplefilter("ignore")
                return [timed(call) for call in self.calls.values()], {}
        except NotRepeatableError as error:
            return [], {"missing": f"forward and backward were not run again: {error}"}
        except Exception as error:  # a module that takes no other batch: no timing, no harm
            why = f"{type(error).__name__}: {error}"[:300]
            return [], {"missing": f"forward and backward could not be run again: {why}"}

    def _sums(self, times: list) -> "list[float]":
        return [sum(call.count * ms for call, ms in zip(self.calls.values(), row)) for row in zip(*times)]


def _key(module, args: tuple, named: dict) -> tuple:
    return (id(module), *(tuple(tensor.shape) for tensor in tensors_in((args, named))))


def _numbers(key: tuple) -> int:
    return sum(map(math.prod, key[1:]))


class Way(NamedTuple):
    """Another way to make a pass, step by step."""

    change: Any
    put_back: Any
    inputs: Any = None
    """Of the call; its own, where that is None."""


def on(inputs) -> Way:
    """A way that differs by what is given to the module alone."""
    return Way(_nothing, _nothing, inputs)


def _nothing() -> None:
    pass


def always(change, put_back):
    """A way that is the same for every call: a setting of torch's."""
    return lambda call, module: Way(change, put_back)


class _Call:
    """All that it takes to call a module again, but the module."""

    def __init__(self, module, inputs: "tuple[tuple, dict]") -> None:
        self.module = weakref.ref(module)
        self.inputs = inputs
        self.held = None
        """The module, once it is kept from going."""
        self.modes = [one.training for one in module.modules()]
        self.autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
        self.count = 1
        self.may_be_padded = False

    def keep(self, batched: bool = True) -> None:
        """Let go of the job's tensors."""
        tensors = list(tensors_in(self.inputs))
        if batched:
            self.batch, self.stacked = batch_of(tensors)
        if sum(map(size_of, tensors)) > _INPUT_BYTES:
            raise NotRepeatableError("the inputs are too large to be kept")
        module = self.module()
        if module is not None and sum(map(size_of, (*module.parameters(), *module.buffers()))) <= _HELD_BYTES:
            self.held = module
        self.inputs = each(self.inputs, lambda tensor: tensor.detach().clone().requires_grad_(tensor.requires_grad))

    def look_for_sequences(self) -> None:
        """Whether another batch of these shapes may have more or less padding."""
        tensors = list(tensors_in(self.inputs))
        self.may_be_padded = sum(map(size_of, tensors)) <= _PADDED_BYTES and are_sequences(tensors)

    def share_inputs(self, kept: "_Call") -> None:
        self.batch, self.stacked, self.inputs = kept.batch, kept.stacked, kept.inputs

    def timed(self, limit_ns: int) -> "list[float]":
        """Milliseconds by factor."""
        with self._again() as (module, _):
            first = self._pass(module, 1)
            began = time.perf_counter_ns()
            kept_bytes = _keeping(first)
            took_ns = time.perf_counter_ns() - began
            factors = [factor for factor in _FACTORS if 2 * took_ns * (2 * factor - 1) < limit_ns]
            room = min(_MOST_BYTES, _MEMORY_PART * procfs.available_bytes())
            factors = [factor for factor in factors if factor * kept_bytes < room]
            if len(factors) < 2:
                raise NotRepeatableError("it takes too long, or too much memory")
            return replay.in_turns([first, *(self._pass(module, factor) for factor in factors[1:])], limit_ns // 2)

    def keeps_state(self) -> bool:
        """Whether the modules hold other tensors afterwards."""
        with self._again() as (module, state):
            self._pass(module, 1)()
            norms = (one for one in module.modules() if isinstance(one, torch.nn.modules.batchnorm._NormBase))
            return state.has_changed({id(held) for one in norms for held in one.buffers()})

    def saved_bytes(self, room: int) -> int:
        """Raises as soon as there are more."""
        with self._again() as (module, _):
            return _keeping(self._pass(module, 1), room)

    def timed_without(self, ways: list, limit_ns: int, clock, of) -> "list[float]":
        """Milliseconds as it is, then each way."""
        with self._again() as (module, _):
            run = self._pass(module, 1)
            began = time.thread_time_ns()
            run()
            if 2 * (1 + len(ways)) * (time.thread_time_ns() - began) > _STRETCH * limit_ns:
                raise NotRepeatableError("it takes too long")
            otherwise = [self._otherwise(module, way(self, module)) for way in ways]
            return replay.in_turns([run, *otherwise], limit_ns // 2, clock, of)

    def _otherwise(self, module, way: Way):
        run = self._pass(module, 1, way.inputs)

        def otherwise() -> None:
            way.change()
            try:
                run()
            finally:
                way.put_back()

        return otherwise

    def in_its_mode(self, module) -> None:
        """Train or evaluate, part by part, as when it was called."""
        for one, mode in zip(module.modules(), self.modes):
            one.training = mode

    @contextlib.contextmanager
    def evaluating(self, module):
        """Calls that are compared: without gradients, and without dropout, which makes other numbers each time."""
        module.eval()
        try:
            with torch.no_grad(), torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None):
                yield
        finally:
            self.in_its_mode(module)

    @contextlib.contextmanager
    def _again(self):
        """The module, to be called again in the mode that it was in, and its state, which is put back."""
        module = self.module()
        if module is None:
            raise NotRepeatableError("the module is gone")
        no_obstacle(module)
        state = State(module)
        try:
            self.in_its_mode(module)
            yield module, state
        finally:
            state.restore()

    def _pass(self, module, factor: int, inputs=None):
        args, named = each(inputs or self.inputs, lambda tensor: self._repeated(tensor, factor))
        leaves = (*module.parameters(), *tensors_in((args, named)))

        def run() -> None:
            wanted = tuple(one for one in leaves if one.requires_grad)
            with torch.enable_grad():
                with torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None):
                    result = module(*args, **named)
                if wanted:
                    total = _total(result)
                    replay.run_backward(total, torch.ones_like(total), wanted)

        return run

    def _repeated(self, tensor, factor: int):
        if factor == 1 or not tensor.dim() or (tensor.shape[0] != self.batch and not self.stacked):
            return tensor
        joined = torch.stack if self.stacked else torch.cat
        return joined([tensor.detach()] * factor).requires_grad_(tensor.requires_grad)


def no_obstacle(module) -> None:
    """Nobody but the module may hear of the calls: no hooks, and no other ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        raise NotRepeatableError("other ranks would have to do the same")
    tables = (getattr(one, name, None) or {} for one in module.modules() for name in _HOOKS)
    hooked = not all(_is_the_models(hook) for table in tables for hook in table.values())
    if hooked or any(parameter._backward_hooks for parameter in module.parameters()):
        raise NotRepeatableError("the job has hooks around its modules or gradients")
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        raise NotRepeatableError("the parameters are not on the CPU")


def _is_the_models(hook) -> bool:
    return (getattr(hook, "__module__", ""), getattr(hook, "__name__", "")) in _OF_THE_MODEL


def _total(result):
    """What the backward pass begins at: the loss where the module computes it, else the sum of all that it returns."""
    tensors = [tensor for tensor in tensors_in(result) if tensor.requires_grad]
    if tensors and not tensors[0].dim():
        return tensors[0]
    return sum(tensor.float().sum() for tensor in tensors)


def _keeping(run, room: float = math.inf) -> int:
    """Bytes that a pass, which is made, keeps for its backward pass; raises as soon as they are more than `room`."""
    kept: "dict[int, int]" = {}
    total = 0

    def noted(tensor):
        nonlocal total
        place, size = tensor.untyped_storage().data_ptr(), size_of(tensor)
        total += size - kept.get(place, 0)
        kept[place] = size
        if total > room:
            raise NotRepeatableError("it takes too much memory")
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(noted, lambda one: one):
        run()
    return total
