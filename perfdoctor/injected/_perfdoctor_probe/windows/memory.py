"""The memory window, for `perfdoctor profile --memory`: one step under a dispatch mode that notes the storage of each
tensor that an operator makes, and hears of its end.

Nothing is kept alive by it, and nothing is saved or computed otherwise. What operators need inside themselves, and
tensors that no operator seen here has touched, are in the process's memory, and in no row.
"""

from _thread import get_ident

import torch
from torch.nn.modules import module as nn_module
from torch.utils._python_dispatch import TorchDispatchMode

from .. import timeline as parts
from . import layers
from .alive import Alive
from .innermost import InnermostMode
from .owners import Owners

_NAMES = {
    parts.INPUT: "input_wait",
    parts.FORWARD: "forward",
    parts.LOSS: "forward",
    parts.BACKWARD: "backward",
    parts.OPTIMIZER: "optimizer",
}
"""Of parts of the step; all others are `other`."""
_MADE_IN = {"input_wait": "batch", "forward": "activations", "backward": "backward", "optimizer": "update"}
"""What a tensor is called by where it is made; one that is made elsewhere `other`."""
_HELD = "held"
"""Tensors that were there before the step, and are none of a module's or an optimizer's."""
_LEAST = 1 << 14
"""Bytes of a storage whose line is looked for, which costs 5 us."""
_TOLD = 20
"""Groups of tensors by line and layer, the largest."""


class _Watch(TorchDispatchMode):
    def __init__(self, alive: Alive, sites, loop) -> None:
        super().__init__()
        self.alive = alive
        self.sites = sites
        self.loop = loop
        self.thread = get_ident()
        self.stack: list = []
        """Modules under way."""
        self.roots: list = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else torch wraps the method below in something that imports Dynamo: a second, for a job without it.
        return False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        try:
            self._note(args, kwargs, result)
        except Exception:  # a tensor subclass without a storage, say: this call is not counted
            pass
        return result

    def _note(self, args, kwargs, result) -> None:
        part = _NAMES.get(self.loop.timeline.stack[-1], "other")
        given = [*_tensors(args), *_tensors(kwargs.values())]
        for tensor in given:
            # Made where no operator is seen: by NumPy, by a worker, in another thread.
            self._add(tensor, "batch" if part in ("input_wait", "forward", "other") else "other", part)
        what = _MADE_IN.get(part, "other")
        if what == "other" and torch.is_grad_enabled() and any(one.requires_grad for one in given):
            what = "activations"
        for tensor in _tensors((result,)):
            self._add(tensor, what, part)

    def _add(self, tensor, what: str, part: str) -> None:
        storage = self.alive.add(tensor, what)
        if storage is not None:
            storage.part = part
            storage.layer = self.stack[-1] if self.stack else None
            if storage.size >= _LEAST:
                storage.site = self.sites.call(3, self.thread)[0]

    # Neither hook may raise, and neither may return anything: that would replace inputs or outputs.

    def enters(self, module, inputs) -> None:
        if get_ident() != self.thread:
            return
        if not self.stack:
            self.roots.append(module)
            for tensor in _tensors(inputs):
                storage = self.alive.known(tensor)
                if storage is not None and (storage.what == "other" or _is_all_of(tensor, storage)):
                    storage.what = "batch"
        self.stack.append(module)

    def leaves(self, module, inputs, result) -> None:
        if get_ident() == self.thread and any(one is module for one in self.stack):
            while self.stack.pop() is not module:
                pass


def _tensors(values) -> list:
    """As operators take and give them: alone, or in lists."""
    found = []
    for one in values:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found += _tensors(one)
    return found


def _is_all_of(tensor, storage) -> bool:
    """Of a storage that was there before: a batch that the job uses again, and no piece of its data."""
    return storage.what == _HELD and tensor.nbytes == storage.size


class MemoryWindow(InnermostMode):
    """Opened at one step boundary, closed at the next."""

    name = "memory"
    microbenchmark = final_microbenchmark = None
    steps = 1

    def __init__(self, sites, loop, optimizer, compiled: bool) -> None:
        self.sites = sites
        self.loop = loop
        self.optimizer = optimizer
        self.compiled = compiled
        self.alive = Alive()
        self.handles: list = []
        self.why = ""
        """Why the step is not watched: then its end must do for its peak."""

    def obstacle(self) -> str:
        """Nothing keeps it from looking at what there is."""
        return ""

    def open(self) -> None:
        self._look()
        self.alive.begin()
        self.why = layers.obstacle(self.compiled)
        if self.why:
            return
        watch = _Watch(self.alive, self.sites, self.loop)
        self.handles = [
            nn_module.register_module_forward_pre_hook(watch.enters),
            nn_module.register_module_forward_hook(watch.leaves, always_call=True),
        ]
        self.enter(watch)

    def _look(self) -> None:
        watched = self.watch.roots if self.watch is not None else []
        owners = Owners([*watched, *([self.optimizer] if self.optimizer is not None else [])])
        for what, tensors in (*owners.of, (_HELD, owners.tensors)):
            for one in tensors:
                if one is not None:
                    self.alive.add(one, what)
        owners.claim(self.alive)

    def closable(self) -> bool:
        """Without a mode always."""
        return self.watch is None or super().closable()

    def _leave(self) -> None:
        for handle in self.handles:
            handle.remove()
        if self.watch is not None:
            self.watch.__exit__(None, None, None)

    def abandon(self) -> None:
        """Leave the mode, and look at no storage any more."""
        self._leave()
        self.alive.end()

    def close(self, steps: int) -> dict:
        """Leave the mode; what the peak of each device consists of."""
        self._leave()
        if self.watch is None:
            self.alive.end()
            self.alive = Alive()
            self._look()
            self.alive.begin()
        else:
            # A gradient is made by the backward pass as any other tensor of its, and found to be one afterwards.
            Owners(self.watch.roots).claim(self.alive)
        names = self._names()
        devices = [self._device(device, names) for device in sorted(self.alive.level)]
        self.alive.end()
        return {"devices": devices, "unwatched": self.why}

    def _device(self, device: str, names: "dict[int, str]") -> dict:
        alive, last = self.alive.peak(device)
        read_at, whole, mapped = self.alive.readings[device]
        found: "dict[str, list[int]]" = {}
        groups: "dict[tuple, list[int]]" = {}
        total = shared = 0
        for storage, size in alive.values():
            total += size
            shared += size if storage.shared else 0
            layer = storage.layer
            key = (storage.what, storage.site, id(layer), type(layer).__name__ if layer is not None else "")
            for sums in (found.setdefault(storage.what, [0, 0]), groups.setdefault(key, [0, 0])):
                sums[0] += size
                sums[1] += 1
        largest = sorted((one for one in groups.items() if one[0][1] >= 0), key=lambda one: -one[1][0])[:_TOLD]
        return {
            "device": device,
            "part": last.part if last is not None else "",
            "site": last.site if last is not None else -1,
            # What was read a little below the peak, at the peak.
            "whole_bytes": whole + total - read_at if whole else 0,
            "mapped_bytes": max(0, mapped - shared),
            "kinds": [{"what": what, "bytes": size, "count": count} for what, (size, count) in found.items()],
            "largest": [
                {
                    "what": what,
                    "site": site,
                    "layer": names.get(layer, ""),
                    "layer_kind": kind,
                    "bytes": size,
                    "count": count,
                }
                for (what, site, layer, kind), (size, count) in largest
            ],
        }

    def _names(self) -> "dict[int, str]":
        names: "dict[int, str]" = {}
        for root in self.watch.roots if self.watch is not None else ():
            for name, module in root.named_modules():
                names.setdefault(id(module), name)
        return names
