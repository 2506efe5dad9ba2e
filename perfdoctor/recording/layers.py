"""Where the compute goes, by layer of the network: the modules in the operator window."""

from __future__ import annotations

from dataclasses import dataclass

from ..injected._perfdoctor_probe import records
from .base import Missing, Site

_GATES = {"LSTM": 4, "GRU": 3}
"""Weights that torch stacks in one matrix: one for each gate."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One module of the network and what it does itself, without the modules inside it. Per step."""

    name: str
    """As in `named_modules()` of the module that the loop calls; "" for that one itself."""
    kind: str
    """Its class: `Linear`, `LSTMCell`, ..."""
    order: int
    """Its place in the order of first calls."""
    leaf: bool
    calls_per_step: float
    forward_ms: float
    backward_ms: float
    """Recomputed forwards (activation checkpointing) count as backward."""
    time_share: float
    """Of all profiled work, in a module or not."""
    flops_per_step: float
    flop_share: float
    parameters: int
    """Numbers, not bytes."""
    parameter_bytes: int
    input_shape: tuple[int, ...] = ()
    weight_shape: tuple[int, ...] = ()
    """Of its first parameter with two dimensions or more: (outputs, inputs) of a Linear."""
    aside: bool = False
    """Part of a model in evaluation mode whose input needs no gradient: what the backward pass does in it makes
    gradients of that model's parameters and nothing else."""
    idle: bool = False
    """The same of a model in training mode, because no optimizer updates any of its parameters."""
    held: bool = False
    """`idle`, and an optimizer has it at a learning rate of 0."""
    called_at: Site | None = None
    """The innermost line of the user's in its first call: in a `forward` of the user's, or in the loop."""
    made_at: Site | None = None
    """The line that made it; None for a copy of a module, and for one that was loaded whole."""
    own: bool = False
    """Its `forward` is in the user's code."""
    sparse: bool = False
    """An embedding table whose gradient is sparse."""

    @property
    def ms(self) -> float:
        return self.forward_ms + self.backward_ms

    @property
    def place(self) -> Site | None:
        """Where to change it: the line that made it, else the one that calls it."""
        return self.made_at or self.called_at

    @property
    def even_channels(self) -> int:
        """Of a convolution: as many outputs as vectors hold wholly, where that is a few more or less; else its own."""
        return records.even_channels(self.weight_shape[0])

    @property
    def even_part(self) -> float:
        """Of its products, those that are left with such numbers of outputs and of inputs; 1.0 where these are more."""
        outputs, inputs = self.weight_shape[:2]
        return min(1.0, self.even_channels / outputs) * min(1.0, records.even_channels(inputs) / inputs)

    @property
    def width(self) -> int:
        """The longer side of its weight, of a recurrent layer that of one gate; 0 without a weight."""
        outputs, inputs = (*self.weight_shape[:2], 0, 0)[:2]
        return max(outputs // _GATES.get(self.kind.removesuffix("Cell"), 1), inputs)


@dataclass(frozen=True, slots=True)
class UnusedGradients:
    """Parameters that have a gradient after an update and are in no optimizer, or in one at a learning rate of 0, in
    models whose other parameters, or whose input, need the backward pass (others are `Layer.aside` or `Layer.idle`).
    Per step, milliseconds as those of layers."""

    parameters: int
    of: int
    """All that require a gradient there."""
    elements: int
    modules: tuple[str, ...]
    """The outermost modules without a parameter that learns: names, or the class of one that the loop calls."""
    ahead_forward_ms: float
    """In layers ahead of all that learns: without these gradients no graph is recorded there ..."""
    ahead_backward_ms: float
    """... and the backward pass ends before it reaches them."""
    behind_backward_ms: float
    """In other layers without a parameter that learns: the backward pass must come through."""
    made_at: Site | None = None
    """The line that made the first of the modules."""
    called_at: Site | None = None
    held: int = 0
    """Of these, at a learning rate of 0."""
    set_on_modules: int = 0
    """Modules among them that were given an attribute `requires_grad`, which sets nothing."""
    partly: bool = False
    """The optimizer was given others of the same model."""
    in_norm: bool = False
    """In evidence: a library reads them all the same, for the norm of all gradients (`GradientReads`)."""


NO_UNUSED_GRADIENTS = Missing("an optimizer updates every parameter that gets a gradient")


@dataclass(frozen=True, slots=True)
class LayerProfile:
    """The modules in the profiled steps, the largest by time first; empty for a job without modules.

    On CUDA milliseconds are the device's, otherwise the host's. Recorded as profiled, which makes work longer; evidence
    has them as in an ordinary step.
    """

    layers: tuple[Layer, ...]
    count: int
    """Modules called, listed or not."""
    total_ms: float
    """All profiled work, in a module or not."""
    flops_per_step: float
    on_device: bool = False
    stray_ms: float = 0.0
    """Time without a CPU that may all have fallen into one layer."""
    unused: UnusedGradients | Missing = NO_UNUSED_GRADIENTS

    @property
    def aside_backward_ms(self) -> float:
        """Of the backward pass, in models that stand aside (`Layer.aside`)."""
        return sum(layer.backward_ms for layer in self.layers if layer.aside)

    @property
    def idle(self) -> tuple[Layer, ...]:
        """Those of models that no optimizer updates (`Layer.idle`)."""
        return tuple(layer for layer in self.layers if layer.idle)
