"""Which library did what in the operator window, typed: microseconds and calls of the whole window."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvolutionRow:
    """Convolutions that are alike."""

    kernel: str = ""
    """The operator that did it: `aten::mkldnn_convolution`, `aten::thnn_conv2d`, `aten::cudnn_convolution`, ...; ""
    where it has no name, as oneDNN's transposed convolution."""
    choice: str = ""
    """What torch chose between the steps: `Mkldnn`, `Slow2d`, ...; "" when it could not be asked."""
    chosen: str = ""
    """The same in the forward pass; "" when it could not be asked, and in older recordings."""
    layer: str = ""
    module: str = ""
    dtype: str = ""
    input: tuple[int, ...] = ()
    weight: tuple[int, ...] = ()
    transposed: bool = False
    dilated: bool = False
    groups: int = 1
    channels_last: bool | None = None
    """Memory format of the layer's input; None when it was not seen or has not four dimensions."""
    calls: int = 0
    forward_us: int = 0
    backward_us: int = 0
    device_forward_us: int = 0
    device_backward_us: int = 0


@dataclass(frozen=True, slots=True)
class RecurrentRow:
    """Calls of one recurrent layer."""

    kernel: str = ""
    """The operator that did it: `aten::mkldnn_rnn_layer`, `aten::_cudnn_rnn`; otherwise what was called."""
    layer: str = ""
    module: str = ""
    dtype: str = ""
    input: tuple[int, ...] = ()
    calls: int = 0
    forward_us: int = 0
    backward_us: int = 0
    device_forward_us: int = 0
    device_backward_us: int = 0
    copies_us: int = 0
    """Copies of the weights into one piece, inside `aten::_cudnn_rnn`."""
    native_us: float = 0.0
    """One call, forward and backward, with oneDNN off; 0 when it was not replayed."""
    onednn_us: float = 0.0


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """Attention that is alike, in one layer."""

    made: str = ""
    """`by hand`, `math` or `fused`."""
    kernel: str = ""
    layer: str = ""
    module: str = ""
    dtype: str = ""
    package: str = ""
    """Of the module's class; "" outside any module and in older recordings."""
    sizes: tuple[int, ...] = ()
    """Batch times heads, queries, width of a head, keys."""
    mask: str = ""
    """`fill`, `add`, `causal` or ""."""
    dropout: float = 0.0
    calls: int = 0
    forward_us: int = 0
    backward_us: int = 0
    device_forward_us: int = 0
    device_backward_us: int = 0
    now_us: float = 0.0
    """One call, forward and backward, replayed as the job does it; 0 when it was not."""
    fused_us: float = 0.0
    """The same by `scaled_dot_product_attention`."""
    part: float = 1.0
    """Share of the call that was replayed."""
    choice: str = ""
    """What `scaled_dot_product_attention` would choose between the steps: `math` or `fused`."""


@dataclass(frozen=True, slots=True)
class LibraryUse:
    """The libraries' work in the operator window."""

    convolutions: tuple[ConvolutionRow, ...] = ()
    recurrent: tuple[RecurrentRow, ...] = ()
    attention: tuple[AttentionRow, ...] = ()
    missing: str = ""
