"""Parameters that get a gradient in every step and are in no optimizer, and whether anybody reads those gradients.

Which they are is looked up as the operator window closes, right after an update. Only where there are any, another
window opens: for a step or two each read of a `.grad` from Python is noted. A norm, clipping or an update by hand reads
it; `zero_grad` does too, and uses nothing.
"""

import sys
from _thread import get_ident

import torch

from ..changes import Changes

_SAMPLED = 64
"""Numbers of each parameter that are compared, to see whether anybody but an optimizer updates it."""
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_ZEROING = "zero_grad"
"""The function of torch's that reads gradients to let them go."""


def without_optimizer(parameters, updated: "set[int]") -> list:
    """Those that have a gradient after an update and are none of the `updated`, by their `id()`. Not one with hooks:
    they are told of its gradients."""
    return [
        one
        for one in parameters
        if type(one) is torch.nn.Parameter
        and one.requires_grad
        and id(one) not in updated
        and one.grad is not None
        and not any(getattr(one, name, None) for name in _HOOKS)
    ]


class UnusedGradients:
    """Of the modules that the loop calls."""

    def __init__(self, roots: list, updated: "set[int]") -> None:
        wanting = {id(one): one for root in roots for one in root.parameters() if one.requires_grad}
        self.of = len(wanting)
        self.parameters = without_optimizer(wanting.values(), updated)
        self.ids = {id(one) for one in self.parameters}
        self.modules = [found for root in roots for found in self._outermost("", root)]
        self.sampled = [_numbers(one) for one in self.parameters]

    def _outermost(self, name: str, module) -> "list[tuple]":
        """Name and module, where none of its parameters is in an optimizer."""
        wanting = [one for one in module.parameters() if one.requires_grad]
        if not self.ids.intersection(map(id, wanting)):
            return []
        if self.ids.issuperset(map(id, wanting)) or any(id(one) in self.ids for one in module.parameters(False)):
            return [(name, module)]
        children = ((f"{name}.{child}" if name else child, one) for child, one in module.named_children())
        return [found for child in children for found in self._outermost(*child)]

    def are_updated(self) -> bool:
        """Whether somebody has, by other means than an optimizer's step."""
        return not all(torch.equal(_numbers(one), before) for one, before in zip(self.parameters, self.sampled))

    def freeze(self) -> None:
        """Have no backward pass compute them."""
        for one in self.parameters:
            one.requires_grad_(False)

    def thaw(self) -> None:
        """As it was."""
        for one in self.parameters:
            one.requires_grad_(True)


def _numbers(parameter):
    values = parameter.detach().reshape(-1)
    return values[:: max(1, values.numel() // _SAMPLED)].clone()


class GradientsWindow:
    """Opened at one step boundary, closed at another."""

    name = "gradients"
    microbenchmark = final_microbenchmark = None

    def __init__(self, unused: UnusedGradients, sites, compiled: bool) -> None:
        self.unused = unused
        self.sites = sites
        self.compiled = compiled
        self.changes = Changes()
        self.reads = 0
        self.read_at = -1

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        return "the job uses torch.compile, which would trace the reads" if self.compiled else ""

    def open(self) -> None:
        self.thread = get_ident()
        theirs = torch._C.TensorBase.grad

        def read(parameter):
            self._note(parameter, sys._getframe(1).f_code)
            return theirs.__get__(parameter)

        self.changes.put(torch.nn.Parameter, "grad", property(read, theirs.__set__, theirs.__delete__))
        original = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            # What `autograd.grad` is asked for it returns, so the job has a use for it.
            inputs = args[4] if len(args) > 4 else ()
            if any(id(one) in self.unused.ids for one in inputs or ()) and not kwargs.get("accumulate_grad"):
                self.reads += 1
            return original(*args, **kwargs)

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)

    def _note(self, parameter, code) -> None:
        zeroing = code.co_name == _ZEROING and self.sites.is_library(code.co_filename)
        if zeroing or id(parameter) not in self.unused.ids:
            return
        self.reads += 1
        if self.read_at < 0 and get_ident() == self.thread:
            self.read_at = self.sites.here(2)

    def closable(self) -> bool:
        """Nothing of it depends on where the thread is."""
        return True

    def is_gone(self) -> bool:
        """Never: it is the process's."""
        return False

    def abandon(self) -> None:
        """Take the reader away."""
        self.changes.take_back()

    def close(self, steps: int) -> dict:
        """What use was seen of these gradients in `steps` steps."""
        self.abandon()
        read = {"read_at": self.read_at} if self.read_at >= 0 else {}
        return {"reads_per_step": self.reads / steps, "updated": self.unused.are_updated(), **read}
