"""Which library did the convolutions, the recurrent layers and the attention in the operator window. Per step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .base import NOT_TIMED, Missing

Made = Literal["by hand", "math", "fused"]


@dataclass(frozen=True, slots=True)
class Convolution:
    """Convolutions of one shape and type. Per step, as profiled."""

    kernel: str
    """The operator that did it: `mkldnn_convolution`, `thnn_conv2d`, `cudnn_convolution`, ...; "" where it has no
    name, as oneDNN's transposed convolution."""
    choice: str
    """What torch would choose between the steps: `Mkldnn`, `Slow2d`, ...; "" when it was not asked."""
    layer: str
    module: str
    dtype: str
    input_shape: tuple[int, ...]
    weight_shape: tuple[int, ...]
    channels_last: bool | None
    """Memory format of its input; None when it was not seen or has not four dimensions."""
    calls_per_step: float
    ms_per_step: float
    """Forward and backward: of the device where there is one, otherwise of the host."""
    chosen: str = ""
    """What torch chose in the forward pass, by its own `_select_conv_backend`; "" when it could not be asked."""

    @property
    def native(self) -> bool:
        """torch's own kernel, of no library. By the operator that ran; by torch's choice where that has no name.

        `CudaDepthwise2d` is torch's too, but chosen because it is faster there than cuDNN.
        """
        if self.kernel:
            return "slow_conv" in self.kernel or "thnn_conv" in self.kernel
        return self.chosen.startswith("Slow")

    @property
    def size(self) -> str:
        """`16 x 32 x 32 x 32 by 32 x 32 x 3 x 3`."""
        return " by ".join(" x ".join(map(str, shape)) for shape in (self.input_shape, self.weight_shape))


@dataclass(frozen=True, slots=True)
class Recurrent:
    """One recurrent layer. Per step, as profiled."""

    kernel: str
    """`mkldnn_rnn_layer`, `_cudnn_rnn`; otherwise what was called: `lstm`, `gru`, ..."""
    layer: str
    module: str
    dtype: str
    calls_per_step: float
    ms_per_step: float
    copies_ms: float
    """Copying weights that are scattered in memory into one piece, on the host's clock."""
    native_ms: float = 0.0
    """One call, forward and backward, replayed with oneDNN off; 0 when it was not."""
    onednn_ms: float = 0.0
    """The same with oneDNN on."""
    packed_ms: float = 0.0
    """One call on packed sequences, forward and backward, replayed; 0 when it was not."""
    padded_ms: float = 0.0
    """The same on the sequences padded to the longest."""

    @property
    def native(self) -> bool:
        return self.kernel not in ("mkldnn_rnn_layer", "_cudnn_rnn", "miopen_rnn")


@dataclass(frozen=True, slots=True)
class AttentionTiming:
    """One call, forward and (where the job has one) backward, replayed in this process both ways."""

    now_ms: float
    fused_ms: float
    """By `scaled_dot_product_attention`, with the same mask and dropout."""
    part: float
    """Share of the call that was replayed; 1 for all of it."""
    choice: str
    """What `scaled_dot_product_attention` would choose between the steps: `math` or `fused`."""
    causal_ms: float | None = None
    """As `fused_ms`, with `is_causal=True`; None where the job's mask cannot be that."""


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of one layer. Per step, as profiled."""

    made: Made
    """`by hand`: product, softmax, product. `math`: torch's function, but not its fused kernel."""
    layer: str
    module: str
    dtype: str
    batch: int
    """Samples times heads."""
    queries: int
    width: int
    """Of one head."""
    keys: int
    mask: str
    """`fill`, `add`, `causal` or ""."""
    dropout: float
    calls_per_step: float
    ms_per_step: float
    """Forward and backward: of the device where there is one, otherwise of the host."""
    timing: AttentionTiming | Missing = NOT_TIMED
    package: str = ""
    """Whose module makes it: `transformers`, `torch`, or a module of the job's."""


@dataclass(frozen=True, slots=True)
class LibraryTiming:
    """One of the job's own operators, timed in its process on ones of its shapes with oneDNN off and on."""

    name: str
    shapes: str
    dtype: str
    native_milliseconds: float
    onednn_milliseconds: float


@dataclass(frozen=True, slots=True)
class LayoutTiming:
    """One operator on images, replayed in this process with their channels first, as in the job, and last."""

    name: str
    shapes: str
    first_ms: float
    last_ms: float
    ms_per_step: float
    """Of all its calls, as profiled."""


@dataclass(frozen=True, slots=True)
class LibraryUse:
    """What the operator window says of it; each tuple the largest first."""

    convolutions: tuple[Convolution, ...]
    recurrent: tuple[Recurrent, ...]
    attention: tuple[Attention, ...]
    on_device: bool = False
    """Times are the device's."""
    layout_ms: float = 0.0
    """In cuDNN's kernels that turn tensors round for convolutions, on the device."""
    layout_timings: tuple[LayoutTiming, ...] = ()
    """On the CPU, where a convolution of a known layer had its channels first."""
