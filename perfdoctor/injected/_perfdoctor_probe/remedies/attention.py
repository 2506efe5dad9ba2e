"""Attention by torch's fused operator, where a model makes it by hand or asks for the weights."""

import torch
from torch.nn import MultiheadAttention

from .lazy_scores import Fusing, Scores, without_weights
from .precision import _AtTheBorder, border

_saving = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
_SWITCHES = ("flash", "mem_efficient", "cudnn")


class Sdpa(_AtTheBorder):
    """Three ways to it, and all are gone: a product, a softmax and a product become one operator; layers of
    `nn.MultiheadAttention` are not asked for their weights; and kernels that are switched off are on.

    Every operator of the forward goes through Python here (about 2 us each), so a trial shows a little less than the
    fix gives. A loop that uses the weights of a layer fails.

    What `torch.utils.checkpoint` computes again in the backward pass must be computed in the same way. So modules
    inside the root have the hooks too: one that is called again has them again. Attention that a checkpoint calls
    otherwise stays as it is.
    """

    settle = 3

    def apply(self) -> None:
        roots = border(self.probe)
        self.found = 0
        self.refused = False
        self.mode = Fusing(self.fused, self.recomputed)
        self.switched = [name for name in _SWITCHES if not getattr(torch._C, f"_get_{name}_sdp_enabled")()]
        for name in self.switched:
            self._switch(name, True)
        self.inside: list = []
        self.hook([module for root in roots for module in root.modules() if module is root or any(module.children())])
        layers = {layer for root in roots for layer in root.modules() if isinstance(layer, MultiheadAttention)}
        for layer in layers:
            hook = layer.register_forward_pre_hook(self._without_weights, with_kwargs=True)
            self.changes.when_undone(hook.remove)

    def withdraw(self) -> None:
        super().withdraw()
        for name in getattr(self, "switched", ()):
            self._switch(name, False)
        self.switched = []

    def _switch(self, name: str, on: bool) -> None:
        setter = {"mem_efficient": "_set_sdp_use_mem_efficient"}.get(name, f"_set_sdp_use_{name}")
        getattr(torch._C, setter)(on)

    def fused(self) -> None:
        """One attention went through the fused operator."""
        self.found += 1

    def _without_weights(self, layer, args, kwargs):
        changed = without_weights(args, kwargs)
        self.found += changed is not None
        return changed

    def around(self):
        return self.mode

    def enter(self, module, args, kwargs):
        super().enter(module, args, kwargs)
        self.inside.append(_checkpoint())

    def leave(self, module, args, kwargs, output):
        super().leave(module, args, kwargs, output)
        self.inside.pop()
        return output.value() if isinstance(output, Scores) else None

    def recomputed(self) -> bool:
        """Whether what is called now will be called again, but not through a module that has the hooks."""
        checkpoint = _checkpoint()
        self.refused = self.refused or (checkpoint is not None and checkpoint is not self.inside[-1])
        return checkpoint is not None and checkpoint is not self.inside[-1]

    def lost(self) -> str:
        if self.found or self.switched:
            return ""
        if self.refused:
            return "its attention is inside a `checkpoint` of a function, which would compute it in another way again"
        return "the model has no attention of a form that could be replaced"


def _checkpoint():
    """What `torch.utils.checkpoint` does with tensors that are saved here, unless it is of the reentrant kind; None
    outside of it."""
    hooks = _saving(True) if _saving is not None else None
    return hooks[0] if hooks and getattr(hooks[0], "__module__", "") == "torch.utils.checkpoint" else None
