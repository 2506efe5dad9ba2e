"""DistributedDataParallel reduces gradients once per optimizer step."""

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .base import Remedy, UnsuitableError


class NoSync(Remedy):
    """All but the last forward and backward pass of a step run as under `no_sync`. Which is the last is known by how
    many there were in the steps before; a step that has fewer is reduced as its optimizer begins, on all ranks alike.
    """

    needs = ("communication", "optimizer")

    def apply(self) -> None:
        self.passes = {key: passes for key, passes in self.probe.communication.reduced_per_step().items() if passes > 1}
        if not self.passes:
            raise UnsuitableError("no model of the job reduces its gradients several times per step")
        self.models: dict = {}
        """By id(): the model, the step of its last forward pass, and those in it."""
        original = DistributedDataParallel._pre_forward

        def pre_forward(model, *args, **kwargs):
            if id(model) in self.passes and torch.is_grad_enabled() and model.training:
                self._count(model)
            return original(model, *args, **kwargs)

        self.changes.put(DistributedDataParallel, "_pre_forward", pre_forward)
        self.hook = register_optimizer_step_pre_hook(self._before_update)

    def withdraw(self) -> None:
        super().withdraw()
        if hasattr(self, "hook"):
            self.hook.remove()
        for model, _, _ in getattr(self, "models", {}).values():
            model.require_backward_grad_sync = True

    def _count(self, model) -> None:
        step = self.probe.loop.timeline.step
        _, before, count = self.models.get(id(model), (model, step, 0))
        count = count + 1 if before == step else 1
        self.models[id(model)] = model, step, count
        model.require_backward_grad_sync = count >= self.passes[id(model)]

    def _before_update(self, optimizer, args, kwargs) -> None:
        """Gradients that no rank has reduced yet: the last batches of an epoch may be fewer."""
        for model, _, _ in self.models.values():
            if not model.require_backward_grad_sync:
                model.require_backward_grad_sync = True
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        torch.distributed.all_reduce(parameter.grad, group=model.process_group)
                        parameter.grad.div_(model.process_group.size())
