"""Whether what a backward pass differentiated has been updated since: where steps end in a job without an optimizer.

One leaf of the autograd graph stands for all parameters, because looking at one costs a microsecond or two. An update
in place moves its version counter, `p.data = ...` its memory, and functional code lets go of it for a new one.
An update through `p.data` moves nothing, but the gradients are reset then, which moves theirs.
"""

import weakref

import torch
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor, is_gradtrackingtensor

_SILENT = 8
"""Times the usual number of backward passes without an update to be seen, after which each is taken for a step of its
own; where they add to `.grad`, and may be meant for one update."""
_EQUAL = 3
"""Times in a row that so many passes came between two updates seen in the parameter, after which they are one step."""
_MOST = 512
"""Passes of a step that is found by this."""
_NODES = 1000
"""Of the graph to look through for a leaf."""


class Updates:
    """Of the parameters that the training thread's backward passes differentiate."""

    def __init__(self) -> None:
        self.window_is_open = bool
        """Set by the probe."""
        self.reset()

    def reset(self) -> None:
        """Forget everything: at install, and in a forked child."""
        self.leaf = _gone
        self.weight = self.gradient = None
        """What there was to be seen of it as the last pass ended."""
        self.accumulates = self.in_weights = False
        self.usual, self.passes = 1, 0
        """Backward passes between two updates, and since the last one that was seen."""
        self.between = self.equal = 0
        """Passes between the last two such updates, and how often in a row there were as many."""
        self.regrouped = False
        """Whether the last look has shown that passes taken for steps are parts of one."""

    def pass_began(self, args: tuple, accumulates: bool) -> bool:
        """An outermost pass, with the arguments of `_engine_run_backward`, begins. False: no step's own.

        That is a derivative on the way to a loss: one whose graph is kept, or any `autograd.grad` in a job that calls
        `backward()`.
        """
        self.accumulates |= accumulates
        outputs, _, _, keeps_graph, inputs = args[:5]
        first = inputs[0] if inputs else None
        if first is not None and is_gradtrackingtensor(first):
            first = get_unwrapped(first)
            keeps_graph = is_gradtrackingtensor(first)  # torch.func.grad keeps it always: whether it is inside another
            while is_functorch_wrapped_tensor(first):  # by `vmap`
                first = get_unwrapped(first)
        if accumulates != self.accumulates or (keeps_graph and not accumulates):
            return False
        if self.leaf() is None or self.passes == _SILENT * self.usual:
            self.in_weights = False
            with torch._C.DisableTorchFunction():
                leaf = _leaf_of(outputs[0]) if first is None else first
            # Of other types the calls below are somebody else's code; what `vmap` batches has no storage.
            plain = type(leaf) in (torch.Tensor, torch.nn.Parameter) and not is_functorch_wrapped_tensor(leaf)
            self.leaf = weakref.ref(leaf) if plain else _gone
        return True

    def pass_ended(self) -> None:
        """That pass ended."""
        self.passes += 1
        leaf = self.leaf()
        if leaf is not None:
            self.weight, self.gradient = _state(leaf)

    def look(self) -> "bool | None":
        """None: no update since that pass. Else whether it was seen in the parameter itself."""
        if torch.is_inference_mode_enabled():
            return None  # an evaluation: later will do, where no window would open in the one and close in the other
        leaf = self.leaf()
        weight, gradient = (None, None) if leaf is None else _state(leaf)
        in_weight = weight != self.weight
        self.regrouped = False
        # With several models, a gradient is also reset for the step of another one.
        if in_weight or (gradient != self.gradient and not self.in_weights):
            self.in_weights |= in_weight
            self.regrouped = in_weight and self._are_parts()
            if self.accumulates or self.passes <= _SILENT or self.regrouped:
                self.usual = self.passes
            self.passes = 0
            return in_weight
        # A window may keep a leaf alive, and under its dispatch mode operators of lists move no version counter.
        hidden = self.in_weights and self.window_is_open()
        times = _SILENT if self.accumulates and not hidden else 1
        if self.passes < times * self.usual:
            return None
        if self.usual > 1 and not self.accumulates:
            # A frame whose locals were read keeps an old parameter alive: the next pass has the one of today.
            self.leaf, self.weight, self.passes = _gone, None, 0
        return False

    def _are_parts(self) -> bool:
        """Passes that add to no `.grad`, and after which nothing was seen to change, may each have been followed by an
        update through `p.data`, and are steps. Where their parameter changes after equally many again and again they
        are parts of one: the gradients of single samples, say."""
        if self.accumulates or not _SILENT < self.passes <= _MOST or self.passes == self.usual:
            return False
        self.equal = self.equal + 1 if self.passes == self.between else 1
        self.between = self.passes
        return self.equal == _EQUAL


def _gone() -> None:
    """A reference to no leaf."""


def _state(leaf) -> tuple:
    with torch._C.DisableTorchFunction():
        gradient = leaf.grad
        return (leaf._version, leaf.data_ptr()), None if gradient is None else gradient._version


def _leaf_of(output):
    """The leaf nearest to the output that gets a gradient; None when none is near."""
    nodes = [getattr(output, "grad_fn", None)]
    for node in nodes:
        if type(node).__name__ == "AccumulateGrad":
            return node.variable
        if node is not None and len(nodes) < _NODES:
            nodes += [above for above, _ in node.next_functions]
    return None
