"""Which layer an operator belongs to: ranges around module calls, while the operator window is open and only then.

Global forward hooks give each module call a range of its own in the profile; an operator belongs to the innermost
range around it.
"""

import functools
import gc
import sys
import time
from _thread import get_ident
from typing import NamedTuple

import torch
from torch.nn.modules import module as nn_module
from torch.nn.utils.rnn import PackedSequence

from ..compiler import looked_at
from ..microbenchmarks.passes import PassMicrobenchmark
from ..rows import milliseconds, rounded
from . import conv_choice, gaps
from .by_prefix import ByPrefix
from .gradients import UnusedGradients, bare_leaves, of_optimizers, updated
from .in_parts import InParts
from .in_turn import InTurn
from .layer_times import RANGE, LayerTimes
from .repeated_rows import RepeatedRows
from .siblings import Families, Siblings

_YOUNG_FIRST = (0, 1, None)
"""Generations of objects, None for all: a copy of the model that a step makes has a new optimizer of its own."""
_MOST_SEARCHES = 4
"""Of all objects, in a window: one takes 10 ms where Python keeps track of 100,000."""
_KEPT = 40
"""Layers kept, the largest by time."""
_Range = torch._C._profiler._RecordFunctionFast


_GLOBAL_HOOKS = (
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
)
"""Before torch 2.5 no function asks for all of them."""


def obstacle(compiled: bool) -> str:
    """Why modules cannot be hooked now, or "". Hooks would be traced into compiled code."""
    if compiled or looked_at():
        return "the job uses torch.compile, which would trace the hooks"
    if torch._C._len_torch_dispatch_stack():
        return "the job has a dispatch mode of its own around its steps"
    if any(getattr(nn_module, name) for name in _GLOBAL_HOOKS):
        return "the job has hooks of its own around every module"
    return ""


class Title(NamedTuple):
    """Of one layer."""

    name: str = ""
    kind: str = ""
    channels_last: "bool | None" = None
    """Whether its input had its channels last."""
    backend: str = ""
    """The one that torch chose for a convolution."""
    module: "torch.nn.Module | None" = None
    packed: "torch.Tensor | None" = None
    """Of packed sequences that it was given, how many go on at each step of time."""


class Layers:
    """Hooks around every module call on this thread."""

    def __init__(self, sites=None, optimizer=None) -> None:
        self.sites = sites
        self.optimizers = [optimizer] if optimizer is not None else []
        self.updated = updated(self.optimizers)
        """Ids of parameters that an optimizer updates."""
        self.known_idle: "dict[int, bool]" = {}
        self.searches = 0
        """Of all objects."""
        self.idle = False
        """Whether the outermost module under way has parameters that want gradients, and no optimizer updates them."""
        self.calls: "dict[int, int]" = {}
        """The innermost line of the user's in the first call of a module, as a site, by its `id()`."""
        self.thread = get_ident()
        self.modules: "dict[int, list]" = {}
        """By `id()`: index, module, calls, input shape, channels last, backend, aside, idle."""
        self.batch_sizes: "dict[int, torch.Tensor]" = {}
        """Of the packed sequences in the first call of a module, by its `id()`."""
        self.roots: list = []
        self.passes = PassMicrobenchmark()
        self.parts: "InParts | None" = None
        self.in_parts: "list[tuple[dict, PassMicrobenchmark]]" = []
        """Once asked for with `summary`."""
        self.turns: "InTurn | None" = None
        self.prefixes: "ByPrefix | None" = None
        self.in_turn: "list[tuple[dict, tuple]]" = []
        """Likewise."""
        self.repeating = RepeatedRows()
        self.repeated_rows: "list[tuple[dict, PassMicrobenchmark]]" = []
        """Likewise."""
        self.families: "Families | None" = None
        self.siblings: "list[tuple[dict, Siblings]]" = []
        """Likewise."""
        self.experts: "list[tuple[dict, list]]" = []
        """Likewise."""
        self.own_ns = 0
        """In first calls of modules, which look for lines and backends: where that makes a pause of its own."""
        self.aside = False
        """Whether the outermost module under way is in evaluation mode and got nothing that needs a gradient."""
        self.through: "set[int]" = set()
        """Modules inside one that got something that needs a gradient: the backward pass runs through them."""
        self.alone = True
        """Whether the outermost module under way got nothing of the kind."""
        self.unused: "UnusedGradients | None" = None
        """Once asked for with `summary`; None where there are none."""
        self.watched: "UnusedGradients | None" = None
        """The same, also where gradients of parameters that learn may be zeroed unread."""
        self.stack: "list[tuple]" = []
        self.handles: list = []

    def open(self) -> None:
        if self.sites is not None:
            self.parts = InParts(self.sites)
            self.families = Families(self.sites, self.parts.loops)
            self.turns = InTurn(self.sites, self.parts.loops)
            self.prefixes = ByPrefix(self.sites, self.parts.loops)
        self.handles = [
            nn_module.register_module_forward_pre_hook(self._enters),
            nn_module.register_module_forward_hook(self._leaves, always_call=True),
        ]

    def close(self) -> None:
        """Take the hooks away; ranges that something other than an `Exception` has left open end here."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        while self.stack:
            self.stack.pop()[1].__exit__(None, None, None)

    # Neither hook may raise, and neither may return anything: that would replace inputs or outputs.

    def _enters(self, module, inputs) -> None:
        if get_ident() != self.thread:
            return
        began = time.perf_counter_ns()
        try:
            if not self.stack:
                self.alone = not _needs_gradient(inputs)
                self.aside = self.alone and not module.training
                self.idle = self.alone and module.training and self._is_idle(module)
                if not self.aside and not self.idle:
                    # Hooks around all modules are not given what was passed by name; the frame that calls them has it.
                    self.passes.note(module, inputs, sys._getframe(1).f_locals.get("kwargs", {}))
            known = self.modules.get(id(module))
            if known is None:
                shape = next((list(x.shape) for x in inputs if isinstance(x, torch.Tensor)), [])
                number, backend = len(self.modules), conv_choice.in_forward(module, inputs)
                row = [number, module, 0, shape, _channels_last(inputs), backend, self.aside, self.idle]
                known = self.modules[id(module)] = row
                self.calls[id(module)] = self._caller()
                if inputs and isinstance(inputs[0], PackedSequence):
                    self.batch_sizes[id(module)] = inputs[0].batch_sizes
                if not self.stack:
                    self.roots.append(module)
                if not (self.aside or self.idle):
                    self.repeating.enters(module, self.stack, inputs, sys._getframe(1))
                    if self.families is not None:
                        self.families.enters(module, self.calls[id(module)], self.stack, inputs, sys._getframe(1))
                took_ns = time.perf_counter_ns() - began
                self.own_ns += took_ns if took_ns > gaps.LONG_NS // 2 else 0
            else:
                self.repeating.enters_again(module, inputs, sys._getframe(1))
            # A model that is evaluated and trained in one step stands aside in neither.
            known[6], known[7] = known[6] and self.aside, known[7] and self.idle
            known[2] += 1
            if self.stack and self.parts is not None and not (self.aside or self.idle):
                calls = known[2] if self.modules[id(self.stack[0][0])][2] == 1 else 0
                self.parts.enters(module, calls, self.stack, inputs, sys._getframe(1))
            if self.turns is not None and self.prefixes is not None and not (self.aside or self.idle):
                self.turns.enters(module, self.stack, inputs, sys._getframe(1))
                self.prefixes.enters(module, self.stack, inputs, sys._getframe(1))
            if not self.alone:
                self.through.add(id(module))
            entered = _Range(f"{RANGE}{known[0]}")
            entered.__enter__()
            self.stack.append((module, entered))
        except Exception:  # an exotic input, say: this call has no range
            pass

    def _leaves(self, module, inputs, result) -> None:
        if get_ident() != self.thread or not any(entry[0] is module for entry in self.stack):
            return
        if self.turns is not None:
            self.turns.leaves(module, result)
        while True:
            entered, span = self.stack.pop()
            span.__exit__(None, None, None)
            if entered is module:
                return

    def _caller(self) -> int:
        """The line that leads to the call of a module. In a library's `forward` that is the line that leads to it."""
        outer = self.stack[-1][0] if self.stack else None
        if outer is not None and not self._is_users(outer):
            return self.calls[id(outer)]
        return self.sites.here() if self.sites is not None else -1

    def _is_idle(self, module) -> bool:
        if id(module) in self.known_idle:
            return self.known_idle[id(module)]
        wanting = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
        for generation in _YOUNG_FIRST:
            if wanting.isdisjoint(self.updated):
                self._search(generation)
        found = self.known_idle[id(module)] = bool(wanting) and wanting.isdisjoint(self.updated)
        return found

    def _search(self, generation: "int | None") -> None:
        """For optimizers among the objects of a generation; among all of them a few times only."""
        if generation is None:
            if self.searches == _MOST_SEARCHES:
                return
            self.searches += 1
        known = {id(one) for one in self.optimizers}
        some = [one for one in gc.get_objects(generation) if issubclass(type(one), torch.optim.Optimizer)]
        self.optimizers += [one for one in some if id(one) not in known]
        self.updated |= updated(some)

    def _is_users(self, module) -> bool:
        """Whether its `forward` is in the user's code."""
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        return self.sites is not None and code is not None and not self.sites.is_library(code.co_filename)

    def _learns(self) -> bool:
        """Whether a root is updated by an optimizer. Else copies of the parameters may be what is updated."""
        return any(id(p) in self.updated for root in self.roots for p in root.parameters())

    def summary(self, host: list, device: list, flops, steps: int, stray_ms: float) -> dict:
        """Time and FLOPs by layer, per step. `host` and `device` as `operators.divided` gives them; `stray_ms` as
        there."""
        times = LayerTimes(flops)
        times.read(host, bool(device))
        on_device = times.read_device(device)
        self.passes.recomputes = times.recomputes()
        if device and self.modules and not on_device:
            return {"missing": "the device's work could not be matched with layers"}
        clock, total_ns = (2, times.device_ns) if on_device else (0, times.total_ns)
        names = self._names()
        rows = []
        learns = self._learns()
        held = of_optimizers(self.optimizers)
        spent: "dict[int, tuple[float, float]]" = {}
        for index, module, calls, shape, _, _, aside, idle in self.modules.values():
            forward, backward = times.of(index)
            spent_ns, count = forward[clock] + backward[clock], forward[1] + backward[1]
            spent[index] = milliseconds(forward[clock], steps), milliseconds(backward[clock], steps)
            rows.append(
                {
                    "name": names.get(id(module), ""),
                    "kind": type(module).__name__,
                    "order": index,
                    "leaf": next(module.children(), None) is None,
                    "calls_per_step": calls / steps,
                    "forward_ms": spent[index][0],
                    "backward_ms": spent[index][1],
                    "time_share": rounded(spent_ns / total_ns) if total_ns else 0.0,
                    "flops_per_step": count / steps,
                    "flop_share": rounded(count / times.flops) if times.flops else 0.0,
                    "input_shape": shape,
                    "aside": aside,
                    "idle": idle and learns,
                    "held": idle and learns and not held.isdisjoint(map(id, module.parameters())),
                    "called_at": self.calls.get(id(module)),
                    "made_at": self.sites.made_at(module) if self.sites is not None else None,
                    "own": self._is_users(module),
                    **_parameters(module),
                }
            )
        rows.sort(key=lambda row: -(row["forward_ms"] + row["backward_ms"]))
        if self.parts is not None and not on_device:
            of_module = functools.partial(self._called, names, spent, steps)
            self.in_parts, self.repeated_rows = self.parts.rows(of_module), self.repeating.rows(of_module)
            one_by_one = (one for one in (self.turns, self.prefixes) if one is not None)
            self.in_turn = [row for one in one_by_one for row in one.rows(of_module)]
            if self.families is not None:
                self.siblings, self.experts = self.families.rows(of_module), self.families.experts(of_module)
        return {
            "layers": rows[:_KEPT],
            "count": len(rows),
            "total_ms": milliseconds(total_ns, steps),
            "flops_per_step": times.flops / steps,
            "on_device": on_device,
            "stray_ms": 0.0 if on_device else stray_ms,
            **self._unused(spent, learns, steps),
        }

    def _called(self, names: dict, spent: dict, steps: int, module) -> "tuple[dict, float]":
        """Facts about a module, and its part of the time in modules, with all that it holds."""
        own = [sum(spent[row[0]]) for one in module.modules() if (row := self.modules.get(id(one))) is not None]
        facts = {
            "name": names.get(id(module), ""),
            "kind": type(module).__name__,
            "at": self.calls[id(module)],
            "calls_per_step": self.modules[id(module)][2] / steps,
            "milliseconds": sum(own),
        }
        return facts, sum(own) / max(1e-9, sum(map(sum, spent.values())))

    def _unused(self, spent: "dict[int, tuple[float, float]]", learns: bool, steps: int) -> dict:
        """Gradients that no optimizer uses, of models that are neither aside nor idle: what they cost is told apart by
        whether the backward pass must come through a layer all the same. `spent`: milliseconds by index."""
        if not self.roots:
            self._search(None)
            bare = bare_leaves(self.updated) if self.updated else []
            self.watched = UnusedGradients([], self.updated, bare) if bare else None
        if not learns:
            return {}
        seen = [row for row in self.modules.values() if not (row[6] or row[7])]
        roots = [row[1] for row in seen if any(row[1] is root for root in self.roots)]
        found = UnusedGradients(roots, self.updated)
        # Of another optimizer, or of several passes for one update.
        if found.parameters or any(row[2] > steps for row in seen if any(row[1] is root for root in roots)):
            self._search(None)
            found = self.watched = UnusedGradients(roots, self.updated)
        if not found.parameters:
            return {}
        self.unused = found
        learned = min((row[0] for row in seen if self._own(row[1]) & self.updated), default=len(self.modules))
        ahead = [spent[row[0]] for row in seen if row[0] < learned and id(row[1]) not in self.through]
        behind = [row for row in seen if row[0] > learned or id(row[1]) in self.through]
        weights = [spent[row[0]] for row in behind if (own := self._own(row[1])) and own <= found.ids]
        _name, module = found.modules[0]
        return {
            "unused": {
                "parameters": len(found.parameters),
                "of": found.of,
                "held": found.held(self.optimizers),
                "set_on_modules": found.set_on_modules(),
                "partly": found.are_partly_learning(),
                "elements": sum(one.numel() for one in found.parameters),
                "modules": [name or type(module).__name__ for name, module in found.modules],
                "made_at": self.sites.made_at(module) if self.sites is not None else None,
                "called_at": self.calls.get(id(module)),
                "ahead_forward_ms": sum(forward for forward, _ in ahead),
                "ahead_backward_ms": sum(backward for _, backward in ahead),
                "behind_backward_ms": sum(backward for _, backward in weights),
            }
        }

    @staticmethod
    def _own(module) -> "set[int]":
        """Of the module itself, those that want gradients, by `id()`."""
        return {id(one) for one in module.parameters(recurse=False) if one.requires_grad}

    def named(self) -> "list[dict]":
        """Of every module seen, in the order of their ranges, its name, its class and its lines."""
        names = self._names()
        return [
            {
                "name": names.get(id(module), ""),
                "kind": type(module).__name__,
                "called_at": self.calls.get(id(module)),
                "made_at": self.sites.made_at(module) if self.sites is not None else None,
            }
            for _, module, *_ in self.modules.values()
        ]

    def weights(self) -> "set[tuple]":
        """Shapes of the parameters of every module seen."""
        held = (p for _, module, *_ in self.modules.values() for p in module.parameters(recurse=False))
        return {tuple(p.shape) for p in held if not torch.nn.parameter.is_lazy(p)}

    def on_cpu(self) -> bool:
        """Whether the modules compute there, by their parameters."""
        first = (next(root.parameters(), None) for root in self.roots)
        return all(parameter is None or parameter.device.type == "cpu" for parameter in first)

    def titles(self) -> "dict[int, Title]":
        """What the operators of each layer are told with, by index."""
        names = self._names()
        return {
            index: Title(
                names.get(id(module), ""),
                type(module).__name__,
                channels_last,
                backend,
                module,
                self.batch_sizes.get(id(module)),
            )
            for index, module, _, _, channels_last, backend, *_ in self.modules.values()
        }

    def _names(self) -> "dict[int, str]":
        names: "dict[int, str]" = {}
        for root in self.roots:
            for name, module in root.named_modules():
                names.setdefault(id(module), name)
        return names


def _needs_gradient(inputs) -> bool:
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


def _channels_last(inputs) -> "bool | None":
    """Of the first input with four dimensions; None without one."""
    for x in inputs:
        if isinstance(x, torch.Tensor) and x.dim() == 4:
            return x.is_contiguous(memory_format=torch.channels_last)
    return None


def _parameters(module) -> dict:
    """The module's own, not its children's."""
    count = size = 0
    weight: "list[int]" = []
    for parameter in module.parameters(recurse=False):
        try:
            count += parameter.numel()
            size += parameter.numel() * parameter.element_size()
            shape = list(parameter.shape)
        except (RuntimeError, ValueError):  # lazy, without a shape yet
            continue
        if len(shape) > 1 and not weight:
            weight = shape
    sparse = isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse
    return {"parameters": count, "parameter_bytes": size, "weight_shape": weight, "sparse": bool(sparse)}
