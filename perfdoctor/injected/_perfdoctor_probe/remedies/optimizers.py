"""How an optimizer updates: one operator per parameter, per group, or for all; and how it lets gradients go."""

import functools

import torch
from torch.optim import Optimizer

from .base import Remedy, UnsuitableError, living


class Fused(Remedy):
    """`fused=True` in every group of every optimizer."""

    option = "fused"
    other = "foreach"

    def apply(self) -> None:
        optimizers = [item for item in living((Optimizer,)) if item.param_groups]
        groups = [group for item in optimizers for group in item.param_groups if self.option in group]
        if not groups:
            raise UnsuitableError(f"no optimizer of the job knows `{self.option}`")
        if any(group.get("differentiable") for group in groups):
            raise UnsuitableError("the optimizer's step is differentiable")
        if all(group[self.option] for group in groups):
            raise UnsuitableError("already set")
        self.before = [(group, group[self.option], group.get(self.other)) for group in groups]
        self.moved = []
        if self.option == "fused":
            for item in optimizers:
                self._move_counts(item.state)
        for group in groups:
            group[self.option], group[self.other] = True, False

    def _move_counts(self, states) -> None:
        """Fused kernels read the count of steps on the device, where such an optimizer would have made it."""
        for parameter, state in states.items():
            count = state.get("step")
            if isinstance(count, torch.Tensor) and count.device != parameter.device:
                self.moved.append((state, count.device))
                state["step"] = count.to(parameter.device)

    def withdraw(self) -> None:
        for state, device in getattr(self, "moved", ()):
            state["step"] = state["step"].to(device)
        self.moved = []
        for group, option, other in getattr(self, "before", ()):
            group[self.option], group[self.other] = option, other


class Foreach(Fused):
    """`foreach=True`."""

    option = "foreach"
    other = "fused"


class SetToNone(Remedy):
    """`zero_grad` lets gradients go, whatever it is told."""

    def apply(self) -> None:
        self.calls = self.zeroed = 0
        for owner in (Optimizer, torch.nn.Module):
            self.changes.put(owner, "zero_grad", self._letting_go(owner.zero_grad))

    def _letting_go(self, original):
        @functools.wraps(original)
        def zero_grad(item, set_to_none=True):
            self.calls += 1
            self.zeroed += not set_to_none
            return original(item)

        return zero_grad

    def lost(self) -> str:
        return "" if self.zeroed or not self.calls else "already set"
