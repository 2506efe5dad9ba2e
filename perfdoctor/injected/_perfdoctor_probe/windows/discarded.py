"""Gradients that a backward pass puts into `.grad` and that are zeroed before anybody reads them.

Backward passes are followed for a step or more: which parameters each of them reaches, and how long every node of its
graph takes. A gradient is read when Python takes it (an optimizer's step, clipping, a norm), and thrown away when
`zero_grad` comes first. A node that leads to nothing else need not run; one that leads to gradients of both kinds (a
layer whose own gradient nobody reads, in front of layers that learn) need compute a part only.

No node is held longer than its pass, and no gradient is touched.
"""

import re
import time
from _thread import get_ident

import torch
from torch.nn.modules import module as nn_module

_NODES = 20_000
"""Of one graph; a pass with more is not followed."""
_PASSES = 64
"""Followed at most: an agent makes one for each of its batches."""
_FRAME = re.compile(r'\s*File "(.+)", line (\d+), in (.+)')
"""As the traceback module writes a frame."""
_LISTENED = "BackwardHookFunctionBackward"
"""The node of a module whose gradients somebody is told."""


class _Pass:
    """One that fills `.grad`."""

    def __init__(self, line: int, called: "dict[int, int]", handed: "dict[int, int]") -> None:
        self.line = line
        self.called = called
        """Where models were called since the pass before this one, as sites, by `id()`."""
        self.handed = handed
        """The same of calls with something that needs a gradient: what another model made."""
        self.children: "list[list[int]]" = []
        """Of each node, by number."""
        self.leaves: "dict[int, int]" = {}
        """Nodes that fill a `.grad`: whose, by `id()`."""
        self.needed: "set[int]" = set()
        """Nodes that somebody needs whatever becomes of the parameters."""
        self.marks: list = []
        """Which node began, and when, in the order of execution; the last is the end."""
        self.zeroed: "set[int]" = set()
        """Parameters whose gradients were let go before anybody read them."""
        self.stacks: "dict[int, tuple]" = {}
        """With which nodes were recorded, as texts, by number."""
        self.entrance = -1
        """The first node that need not run, and that one which must leads to."""

    def divided(self) -> "tuple[float, float]":
        """Milliseconds of nodes that need not run, and of those that need compute a part only.

        Where no gradient of the pass is of any use, it was made for something that this does not see (a gradient that
        somebody keeps on the way): there the parameters' own are counted only.
        """
        needs = self.needed | {node for node, whose in self.leaves.items() if whose not in self.zeroed}
        wastes = self.leaves.keys() - needs
        useless = not needs
        whole = part = 0.0
        for (node, began), (_, ended) in reversed(list(zip(self.marks, self.marks[1:]))):
            below = self.children[node]
            spared = any(one in wastes and one not in needs for one in below)
            own = any(one in wastes and one in self.leaves for one in below)
            if any(one in wastes for one in below):
                wastes.add(node)
            if any(one in needs for one in below):
                needs.add(node)
                self.entrance = next((one for one in below if one in wastes and one not in needs), self.entrance)
            if not spared or (useless and not own):
                continue
            if useless or node in needs:
                part += _between_ms(began, ended)
            else:
                whole += _between_ms(began, ended)
        return whole, part

    def ms(self) -> float:
        """From the first node to the end."""
        return _between_ms(self.marks[0][1], self.marks[-1][1]) if len(self.marks) > 1 else 0.0


class Discards:
    """Of the parameters that optimizers update, in the models that the loop calls."""

    def __init__(self, learning: dict, roots: list, sites, bare: "dict | None" = None) -> None:
        """`learning`: the parameters by `id()`. `roots`: the models; none where modules may not be hooked. `bare`:
        tensors that are of no model and in no optimizer, likewise; what nobody reads of these in all of the time is
        thrown away too."""
        self.bare = bare or {}
        self.learning = {**learning, **self.bare}
        self.roots = {id(root): root for root in roots}
        self.sites = sites
        self.passes: "list[_Pass]" = []
        self.pending: "dict[int, list[_Pass]]" = {}
        """Passes that have filled a gradient of which nobody knows yet what becomes, by parameter."""
        self.called: "dict[int, int]" = {}
        self.handed: "dict[int, int]" = {}
        self.inside: "_Pass | None" = None
        self.handle = None
        self.keeps_stacks = False
        """Whether anomaly detection is on for the time being, without its search for NaN."""
        self.follows = bool(self.learning)
        """Whether passes that begin now are followed."""

    def open(self) -> None:
        """Note where models are called."""
        self.thread = get_ident()
        if self.follows and self.roots:
            self.handle = nn_module.register_module_forward_pre_hook(self._calls)
        if self.bare and not torch.is_anomaly_enabled():
            # Each node keeps the stack that it was recorded with.
            torch.set_anomaly_enabled(True, False)
            self.keeps_stacks = True

    def close(self) -> None:
        """Take the hook away."""
        if self.handle is not None:
            self.handle.remove()
            self.handle = None
        if self.keeps_stacks:
            torch.set_anomaly_enabled(False, True)
            self.keeps_stacks = False

    def _calls(self, module, inputs) -> None:
        if id(module) in self.roots and get_ident() == self.thread:
            site = self.called[id(module)] = self.sites.here()
            if any(isinstance(one, torch.Tensor) and one.requires_grad for one in inputs):
                self.handed[id(module)] = site

    # Neither of the next two may raise: the job's own pass lies between them.

    def begins(self, outputs, inputs) -> list:
        """A pass that fills `.grad` begins, of all parameters or the `inputs`. Returns what `ended` is to have."""
        if self.inside is not None:
            # Of reentrant checkpointing: the outer graph does not show what the inner one reaches.
            self._forget(self.inside)
            return []
        if not self.follows or get_ident() != self.thread or len(self.passes) == _PASSES:
            return []
        handles: list = []
        try:
            found = _Pass(self.sites.here(2), self.called, self.handed)
            self.called, self.handed = {}, {}
            only = {id(one) for one in inputs or ()}
            if self._read(found, outputs, only, handles):
                self.passes.append(found)
                self.inside = found
        except Exception:  # nodes of an exotic kind: this pass is not followed
            _remove(handles)
            handles.clear()
        return handles

    def ended(self, handles: list) -> None:
        """It has, or it raised."""
        found, self.inside = self.inside, None
        _remove(handles)
        if found is None:
            return
        try:
            found.marks.append((-1, _now()))
        except Exception:
            self._forget(found)
            return
        for whose in found.leaves.values():
            self.pending.setdefault(whose, []).append(found)

    def taken(self, parameter: int, is_zeroing: bool) -> None:
        """Its gradient was read, or let go."""
        for one in self.pending.pop(parameter, ()):
            if is_zeroing:
                one.zeroed.add(parameter)

    def _forget(self, one: _Pass) -> None:
        if one in self.passes:
            self.passes.remove(one)
        self.inside = None

    def _read(self, found: _Pass, outputs, only: "set[int]", handles: list) -> bool:
        """Its graph; False where it is too large, or may not be timed now."""
        device = torch.cuda.is_initialized()
        if device and torch.cuda.is_current_stream_capturing():
            return False
        nodes: list = []
        numbers: dict = {}

        def number(node) -> int:
            if node not in numbers:
                numbers[node] = len(nodes)
                nodes.append(node)
            return numbers[node]

        for output in outputs:
            node = getattr(output, "grad_fn", None)
            if node is not None:
                number(node)
        for at, node in enumerate(nodes):
            if len(nodes) > _NODES:
                return False
            found.children.append([number(one) for one, _ in node.next_functions if one is not None])
            name = node.name()
            if name == "torch::autograd::AccumulateGrad":
                self._leaf(found, at, node.variable, only)
                continue
            if name == _LISTENED:
                found.needed.add(at)
            if self.keeps_stacks:
                found.stacks[at] = node.metadata.get("traceback_", ())
            handles.append(node.register_prehook(lambda _, at=at: found.marks.append((at, _now()))))
        return bool(found.leaves)

    def _leaf(self, found: _Pass, at: int, variable, only: "set[int]") -> None:
        if only and id(variable) not in only:
            return
        if id(variable) in self.learning:
            found.leaves[at] = id(variable)
        else:
            found.needed.add(at)

    def summary(self, steps: int) -> dict:
        """What was thrown away in `steps` steps, by the pass's line, the model and the line that called it."""
        rows: "dict[tuple[int, int, int], dict]" = {}
        for whose in self.bare:
            self.taken(whose, True)
        for one in self.passes:
            whole, part = one.divided() if one.zeroed else (0.0, 0.0)
            if not (whole or part):
                continue
            root, called_at = self._root(one, wholly=whole > 0)
            row = rows.setdefault(
                (one.line, called_at, id(root)),
                {
                    "at": one.line,
                    "called_at": called_at if called_at >= 0 else None,
                    "module": type(root).__name__ if root is not None else "",
                    "parameters": len(one.zeroed),
                    "elements": sum(self.learning[whose].numel() for whose in one.zeroed),
                    "passes_per_step": 0.0,
                    "whole_ms": 0.0,
                    "part_ms": 0.0,
                    "useless": not one.needed and one.zeroed >= set(one.leaves.values()),
                    "bare": not one.zeroed.isdisjoint(self.bare),
                    "recorded_at": self._recorded_at(one),
                    "handed_at": self._handed_at(one, root),
                },
            )
            row["passes_per_step"] += 1 / steps
            row["whole_ms"] += whole / steps
            row["part_ms"] += part / steps
        return {"discarded": list(rows.values()), "passes_ms": sum(one.ms() for one in self.passes) / steps}

    def _recorded_at(self, one: _Pass) -> "int | None":
        """The line that recorded what need not run, as a site."""
        for text in reversed(one.stacks.get(one.entrance, ())):
            found = _FRAME.match(text)
            if found is not None and not self.sites.is_library(found[1]):
                return self.sites.number((found[1], int(found[2]), found[3], None))
        return None

    def _handed_at(self, one: _Pass, root) -> "int | None":
        """The line that gave another model what this one made, where another pass needs its graph: where that is made,
        it cannot be cut off."""
        own = set() if root is None else set(map(id, root.parameters()))
        shared = any(
            id(root) not in other.called and own & set(other.leaves.values()) - other.zeroed for other in self.passes
        )
        return next((site for whose, site in one.handed.items() if whose != id(root)), None) if shared else None

    def _root(self, one: _Pass, wholly: bool) -> "tuple":
        """The model most of whose gradients were thrown away, and the line that called it."""
        most, found = 0, None
        reached = set(one.leaves.values())
        for root in self.roots.values():
            own = {id(parameter): parameter.numel() for parameter in root.parameters()}
            mine = reached & own.keys()
            if mine and not (wholly and mine - one.zeroed):
                size = sum(own[whose] for whose in mine & one.zeroed)
                most, found = (size, root) if size > most else (most, found)
        return found, one.called.get(id(found), -1)


def _remove(handles: list) -> None:
    for handle in handles:
        handle.remove()


def _now():
    """CPU time of the thread, ns; where a CUDA device computes, an event in its stream."""
    if not torch.cuda.is_initialized():
        return time.thread_time_ns()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _between_ms(one, other) -> float:
    if isinstance(one, int):
        return (other - one) / 1e6
    other.synchronize()
    return one.elapsed_time(other)
