"""Parameters that no optimizer updates get no gradients."""

import functools

import torch
from torch.optim import Optimizer

from ..windows.gradients import updated, without_optimizer
from .base import Remedy, UnsuitableError, living


class FreezeUnused(Remedy):
    """`requires_grad_(False)` for every parameter that has a gradient and that no optimizer updates."""

    def apply(self) -> None:
        learning = updated(living((Optimizer,)))
        self.frozen = without_optimizer(living((torch.nn.Parameter,)), learning)
        if not learning or not self.frozen:
            raise UnsuitableError("an optimizer updates every parameter that gets a gradient")
        original = torch.autograd._engine_run_backward

        @functools.wraps(original)
        def run_backward(outputs, gradients, *args, **kwargs):
            # A loss of nothing but these has no graph now: nobody misses what its pass would have computed.
            wanting = [pair for pair in zip(outputs, gradients) if getattr(pair[0], "requires_grad", True)]
            if kwargs.get("accumulate_grad") and len(wanting) < len(outputs):
                if not wanting:
                    return ()
                outputs, gradients = zip(*wanting)
            return original(outputs, gradients, *args, **kwargs)

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)
        for one in self.frozen:
            one.requires_grad_(False)

    def withdraw(self) -> None:
        super().withdraw()
        for one in getattr(self, "frozen", ()):
            one.requires_grad_(True)

    def lost(self) -> str:
        """A job that freezes layers itself may thaw them."""
        return "the job made parameters require gradients again" if any(p.requires_grad for p in self.frozen) else ""
