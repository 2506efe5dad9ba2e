"""Gradients that nobody uses: of parameters that are in no optimizer, or in one at a learning rate of 0, and those
zeroed before a step reads them.

Where there may be any is looked up as the operator window closes, right after an update: a parameter that this update
did not use has a gradient, or a model was called more than once. Only then another window opens: for a step or two, and
until it is known what became of their gradients, each read of a `.grad` from Python is noted. A norm, clipping or an
update by hand reads it; `zero_grad` does too, and uses nothing.
"""

import dis
import gc
import os
import sys
import time
from _thread import get_ident

import torch

from ..changes import Changes
from .discarded import Discards

_SAMPLED = 64
"""Numbers of each parameter that are compared, to see whether anybody but an optimizer updates it."""
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
_ZEROING = "zero_grad"
"""The function of torch's that reads gradients to let them go."""
_NORM = "norm"
_NORMS = (
    "torch/nn/utils/clip_grad.py",
    "lightning/utilities/grads.py",
    "lightning/pytorch/utilities/grads.py",
    "accelerate/accelerator.py",
    "transformers/trainer.py",
)
"""Files of libraries that read all gradients of a model, to clip or to log their norm: no use of those that no
optimizer has, whose norm is nobody's."""
_UPDATE = "update"
_UPDATES = (os.path.join("torch", "optim"), os.path.join("torch", "amp"))
"""Folders of what reads the gradients of all that an optimizer has: no use of those that it leaves as they are."""
_LET_GO = ("zero_",)
_NO_USE = ("detach_", "requires_grad_")
"""Methods of a gradient by which the job's own code lets it go, and those that come with it."""
_PARTS = "torch.nn.modules."
"""Where torch's own are defined."""
_LONGEST = 16
"""Steps for which the window stays open to see what becomes of gradients: a critic is seldom trained more often than
that before the other model has its turn."""
_LIMIT_NS = 10_000_000_000
"""The step in which it is reached is the last of them: other windows wait."""


def updated(optimizers) -> "set[int]":
    """Parameters that these update, by their `id()`: not those of a group whose learning rate is 0. Whether such a one
    moves all the same, by what an optimizer of another make does, shows in its numbers."""
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    return {id(one) for group in groups if group.get("lr") != 0 for one in group["params"]}


def of_optimizers(optimizers) -> "set[int]":
    """Parameters that these have at whatever learning rate, by their `id()`."""
    return {id(one) for made in optimizers for group in made.param_groups for one in group["params"]}


def without_optimizer(parameters, updated: "set[int]", kinds: tuple = (torch.nn.Parameter,)) -> list:
    """Those that have a gradient after an update and are none of the `updated`, by their `id()`. Not one with hooks:
    they are told of its gradients."""
    return [
        one
        for one in parameters
        if type(one) in kinds
        and one.requires_grad
        and id(one) not in updated
        and one.grad is not None
        and not _is_told(one)
    ]


def _is_told(parameter) -> bool:
    """Whether somebody hears of its gradient as it is computed."""
    return any(getattr(parameter, name, None) for name in _HOOKS)


def bare_leaves(updated: "set[int]") -> list:
    """Tensors with gradients that are none of the `updated`, by their `id()`: all that there are, of modules or not."""
    made = [one for one in gc.get_objects() if issubclass(type(one), torch.Tensor)]
    return without_optimizer([one for one in made if one.is_leaf], updated, (torch.Tensor, torch.nn.Parameter))


class UnusedGradients:
    """Of the modules that the loop calls, or of tensors where it calls none."""

    def __init__(self, roots: list, updated: "set[int]", bare: "list | tuple" = ()) -> None:
        """`bare`: what is of no module and in no optimizer."""
        self.bare = {id(one): one for one in bare}
        wanting = {id(one): one for root in roots for one in root.parameters() if one.requires_grad}
        self.of = len(wanting)
        self.roots = roots
        self.learning = {key: one for key, one in wanting.items() if key in updated and not _is_told(one)}
        """Those that an optimizer updates."""
        self.parameters = without_optimizer(wanting.values(), updated) + list(bare)
        self.ids = {id(one) for one in self.parameters}
        self.modules = [found for root in roots for found in self._outermost("", root)]
        self.sampled = [_numbers(one) for one in self.parameters]

    def held(self, optimizers) -> int:
        """How many of these parameters one of all optimizers has, at a learning rate of 0."""
        return len(self.ids & of_optimizers(optimizers))

    def are_partly_learning(self) -> bool:
        """Whether a module that the loop calls has some of them, and others that an optimizer updates."""
        held = [{id(one) for one in root.parameters()} for root in self.roots]
        return any(own & self.ids and own & self.learning.keys() for own in held)

    def set_on_modules(self) -> int:
        """How many of these modules, with all that they hold, have an attribute `requires_grad`, which sets nothing."""
        return sum(1 for _, module in self.modules for one in module.modules() if "requires_grad" in vars(one))

    def _outermost(self, name: str, module) -> "list[tuple]":
        """Name and module, where none of its parameters is in an optimizer."""
        wanting = [one for one in module.parameters() if one.requires_grad]
        if not self.ids.intersection(map(id, wanting)):
            return []
        if self.ids.issuperset(map(id, wanting)):
            return [_inside(name, module)]
        if any(id(one) in self.ids for one in module.parameters(False)):
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


def _inside(name: str, module) -> "tuple":
    """What it holds, where that is one other module and nothing else wants gradients: a loss holds its network. Not the
    parts of a network, which are torch's own."""
    while True:
        holding = [(child, one) for child, one in module.named_children() if _wants(one)]
        if len(holding) != 1 or _wants(module, False) or type(holding[0][1]).__module__.startswith(_PARTS):
            return name, module
        child, module = holding[0]
        name = f"{name}.{child}" if name else child


def _wants(module, recurse: bool = True) -> bool:
    return any(one.requires_grad for one in module.parameters(recurse))


def _numbers(parameter):
    values = parameter.detach().reshape(-1)
    return values[:: max(1, values.numel() // _SAMPLED)].clone()


class GradientsWindow:
    """Opened at one step boundary, closed at another."""

    name = "gradients"
    microbenchmark = final_microbenchmark = None

    def __init__(self, unused: UnusedGradients, sites, compiled: bool, hooks: bool = False) -> None:
        """`hooks`: whether modules may be hooked, to tell where they are called."""
        self.unused = unused
        self.sites = sites
        self.compiled = compiled
        self.changes = Changes()
        self.discards = Discards(unused.learning, unused.roots if hooks else [], sites, unused.bare)
        self.steps_followed = 0
        self.uses: "dict[tuple, str]" = {}
        """What is done with what an instruction of the job's reads."""
        self.reads = self.norms = 0
        self.read_at = -1

    def obstacle(self) -> str:
        """Why this cannot be done now, or ""."""
        return "the job uses torch.compile, which would trace the reads" if self.compiled else ""

    def open(self) -> None:
        self.thread = get_ident()
        self.opened_ns = time.perf_counter_ns()
        self.discards.open()
        theirs = torch._C.TensorBase.grad

        def read(parameter):
            self._note(parameter, sys._getframe(1))
            return theirs.__get__(parameter)

        def write(parameter, value) -> None:
            self.discards.taken(id(parameter), value is None)
            theirs.__set__(parameter, value)

        def delete(parameter) -> None:
            self.discards.taken(id(parameter), True)
            theirs.__delete__(parameter)

        self.changes.put(
            torch.Tensor if self.unused.bare else torch.nn.Parameter, "grad", property(read, write, delete)
        )
        original = torch.autograd._engine_run_backward

        def run_backward(*args, **kwargs):
            inputs = args[4] if len(args) > 4 else ()
            if not kwargs.get("accumulate_grad"):
                # What `autograd.grad` is asked for it returns, so the job has a use for it.
                self.reads += any(id(one) in self.unused.ids for one in inputs or ())
                return original(*args, **kwargs)
            handles = self.discards.begins(args[0], inputs)
            try:
                return original(*args, **kwargs)
            finally:
                self.discards.ended(handles)

        self.changes.put(torch.autograd, "_engine_run_backward", run_backward)

    def _note(self, parameter, frame) -> None:
        use = self._use(frame)
        if not use:
            return
        self.discards.taken(id(parameter), use == _ZEROING)
        if use in (_ZEROING, _UPDATE) or id(parameter) not in self.unused.ids:
            return
        if use == _NORM:
            self.norms += 1
            return
        self.reads += 1
        if self.read_at < 0 and get_ident() == self.thread:
            self.read_at = self.sites.here(2)

    def _use(self, frame) -> str:
        """What is done with a gradient that this frame reads: `zero_grad`, `norm`, `update`, "" for nothing (it is
        compared with None), `read` for anything else."""
        code = frame.f_code
        if code.co_name == _ZEROING and self.sites.is_library(code.co_filename):
            return _ZEROING
        instruction = code, frame.f_lasti
        if instruction not in self.uses:
            done = _done_with(*instruction)
            if done and code.co_filename.endswith(_NORMS):
                done = _NORM
            elif done and os.path.dirname(code.co_filename).endswith(_UPDATES):
                done = _UPDATE
            self.uses[instruction] = done
        return self.uses[instruction]

    def stays(self, steps: int) -> bool:
        """Whether it is to stay open although its `steps` are over: what becomes of some gradients is not known yet."""
        if self.discards.follows:
            self.discards.follows, self.steps_followed = False, steps
        late = time.perf_counter_ns() - self.opened_ns > _LIMIT_NS
        return bool(self.discards.pending) and not late and steps < self.steps_followed + _LONGEST

    def closable(self) -> bool:
        """Nothing of it depends on where the thread is."""
        return True

    def is_gone(self) -> bool:
        """Never: it is the process's."""
        return False

    def abandon(self) -> None:
        """Take the reader away."""
        self.changes.take_back()
        self.discards.close()

    def close(self, steps: int) -> dict:
        """What use was seen of these gradients in `steps` steps."""
        self.abandon()
        read = {"read_at": self.read_at} if self.read_at >= 0 else {}
        return {
            "reads_per_step": self.reads / steps,
            "norms_per_step": self.norms / steps,
            "updated": self.unused.are_updated(),
            **read,
            **self.discards.summary(self.steps_followed or steps),
        }


def _done_with(code, at: int) -> str:
    """By the instruction that follows the one at `at`."""
    after = (one for one in dis.get_instructions(code) if one.offset > at and one.opname != "EXTENDED_ARG")
    following = next(after, None)
    if following is None:
        return "read"
    if following.argval in _LET_GO:
        return _ZEROING
    compared = following.opname.endswith(("IF_NONE", "IF_NOT_NONE"))
    none = following.opname == "LOAD_CONST" and following.argval is None
    return "" if compared or none or following.argval in _NO_USE else "read"
