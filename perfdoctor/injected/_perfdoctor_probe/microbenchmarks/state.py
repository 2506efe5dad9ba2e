"""What calls of a module may change, kept to be put back."""

import collections
import random
import sys

import torch

_HELD = (list, dict, set, collections.deque, collections.OrderedDict)
"""Containers in modules; their buffers lie in the last in older versions of torch."""


class State:
    """What calls of a module may change, but its parameters: attributes, what is in them, and generators."""

    def __init__(self, module) -> None:
        self.random = random.getstate()
        self.numpy = getattr(sys.modules.get("numpy"), "random", None)
        self.numpy_random = self.numpy.get_state() if self.numpy is not None else None
        self.held: list = []
        self.tensors: list = []
        self.generators: list = []
        for one in module.modules():
            self._hold(vars(one))
            for value in vars(one).values():
                if type(value) in _HELD:
                    self._hold(value)

    def _hold(self, container) -> None:
        self.held.append((container, container.copy()))
        for value in container.values() if isinstance(container, dict) else container:
            if isinstance(value, torch.Generator):
                self.generators.append((value, value.get_state()))
            elif isinstance(value, torch.Tensor) and not value.requires_grad:
                self.tensors.append((value, value.clone()))

    def has_changed(self, passed_over: "set[int]") -> bool:
        """Whether a tensor is another one, or has other numbers; but for some, by their `id()`."""
        held = ((_tensors_of(container), _tensors_of(before)) for container, before in self.held)
        if any(now != before for now, before in held):
            return True
        return not all(id(one) in passed_over or torch.equal(one, before) for one, before in self.tensors)

    def restore(self) -> None:
        for container, before in self.held:
            if isinstance(container, dict):
                for name in set(container) - set(before):
                    del container[name]
            else:
                container.clear()
            (container.update if isinstance(container, (dict, set)) else container.extend)(before)
        for tensor, before in self.tensors:
            tensor.data.copy_(before)  # a graph that holds it is none the wiser
        for generator, before in self.generators:
            generator.set_state(before)
        random.setstate(self.random)
        if self.numpy is not None:
            self.numpy.set_state(self.numpy_random)


def _tensors_of(container) -> "set[int]":
    values = container.values() if isinstance(container, dict) else container
    return {id(value) for value in values if isinstance(value, torch.Tensor)}
