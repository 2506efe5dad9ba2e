"""What events are, by their names: the only place that knows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

_COMMUNICATION = re.compile(
    r"nccl|rccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|multimem|cross_device_reduce|one_?shot|two_?shot"
    r"|nvshmem|sendrecv|msccl|oneccl",
    re.IGNORECASE,
)
_ALLOCATOR = re.compile(
    r"^(cuda|hip)(Malloc|Free)(?!Async|FromPoolAsync)|^cuMem(Alloc|Free|Create|Map|Unmap|Release)(?!Async)"
)
_SYNC = re.compile(r"^(cuda|hip|cu|ze)\w*Synchroni[sz]e|^(cuda|hip)Memcpy(?!.*Async)|^cuMemcpy(?!.*Async)")
_COPY_CALL = re.compile(r"^(cuda|hip|cu)Memcpy")
_LAYOUT = re.compile(
    r"transpose_\w*(CNHW|NCHW|NHWC)|nchwToNhwc|nhwcToNchw|nchw_?to_?nhwc|nhwc_?to_?nchw|nchwAddPadding|batched_transpose|transposeNHWC|"
    r"ncdhwToNdhwc|ndhwcToNcdhw|convertTensor_?\w*layout|SubTensorOpWithTransform",
    re.IGNORECASE,
)
_PRODUCT = re.compile(
    r"(?<!fb)gemm|gemv|cutlass|xmma|scudnn|h\d*cudnn|cudnn.*(conv|grad|engine)|implicit_con|wgrad|dgrad|^bmm_|"
    r"conv\w*_?(fprop|bprop|fwd|bwd|wrw)|convolve|winograd|Cijk_|miopen\w*(conv|gemm)|naive_conv|nvjet|fft2d|"
    r"flash_(fwd|bwd|attn)|flash::|fmha|cudnn_generated",
    re.IGNORECASE,
)
_ELEMENTWISE = re.compile(
    r"elementwise|pointwise|reduce_kernel|layer_?norm|rms_?norm|group_?norm|batch_?norm|softmax|dropout|CatArray|bn_(fw|bw)",
    re.IGNORECASE,
)
_LISTED = re.compile(r"multi_tensor_apply|foreach|fused_?(adam|sgd|lamb|adagrad)|FusedAdam|FusedSgd", re.IGNORECASE)
_INPUT = re.compile(
    r"^enumerate\(Data(Loader|Pipe)\)|dataloader\.py\(\d+\): __next__|DataLoader.*__next__|"
    r"^\[pl\]\[profile\].*(fetch|\.train_dataloader_next|_next\b)"
)
_UNWORKED = re.compile("SingleProcess")
_WORKED = re.compile("MultiProcessing")
_OPTIMIZER = re.compile(r"^Optimizer\.step#|^\[pl\]\[module\].*optimizer_step")
_COMPILED = re.compile(r"^Torch-Compiled Region|CompiledFxGraph|^triton_|^CompiledFunction")
_STEP = re.compile(r"^ProfilerStep#\d+")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function|Backward\d*$|^torch::autograd::AccumulateGrad")

_TYPES: Sequence[tuple[str, re.Pattern[str]]] = (
    ("float8", re.compile(r"e4m3|e5m2|fp8|f8f8", re.IGNORECASE)),
    ("tf32", re.compile(r"tf32|s1688(?!.*f16)|_tf32|xf32", re.IGNORECASE)),
    ("bfloat16", re.compile(r"bf16|bfloat16|_B[BS]?S?_?B?H?_|s16816.*bf16", re.IGNORECASE)),
    ("float16", re.compile(r"fp16|f16|half|hgemm|h884|h1688|s884|_HH?S_", re.IGNORECASE)),
    ("float64", re.compile(r"dgemm|f64|d884|double", re.IGNORECASE)),
    ("int8", re.compile(r"int8|i8816|s8", re.IGNORECASE)),
    ("float32", re.compile(r"sgemm|f32|fp32|float|_S[SB]?_|scudnn|simt", re.IGNORECASE)),
)
"""In the order in which they are asked: names hold the types of inputs and of sums."""


def _finder(pattern: re.Pattern[str]) -> Callable[[Sequence[str]], Mask]:
    def find(names: Sequence[str]) -> Mask:
        return np.fromiter((pattern.search(name) is not None for name in names), bool, len(names))

    return find


communication = _finder(_COMMUNICATION)
allocator = _finder(_ALLOCATOR)
syncs = _finder(_SYNC)
copy_calls = _finder(_COPY_CALL)
layouts = _finder(_LAYOUT)
products = _finder(_PRODUCT)
elementwise = _finder(_ELEMENTWISE)
compiled = _finder(_COMPILED)
listed = _finder(_LISTED)
waits_for_input = _finder(_INPUT)
optimizer = _finder(_OPTIMIZER)
steps = _finder(_STEP)
backward = _finder(_BACKWARD)
with_workers = _finder(_WORKED)
without_workers = _finder(_UNWORKED)
"""Each says of a table of names which of them are of the kind."""


def holding(names: Sequence[str], word: str) -> Mask:
    """Which of them have a word in them, as `HtoD` stands in those of copies."""
    return np.fromiter((word in name for name in names), bool, len(names))


def product_type(kernel: str) -> str:
    """The type in which a product's kernel computes, by its name; "" where that does not say."""
    if kernel.startswith("_Z"):  # a mangled name: its numbers are lengths of words
        return "bfloat16" if "DF16b" in kernel or "bhalf" in kernel else "float16" if "DF16_" in kernel else ""
    return next((dtype for dtype, pattern in _TYPES if pattern.search(kernel)), "")


_TEMPLATE = re.compile(r"<.*|\(.*", re.DOTALL)


def short(kernel: str) -> str:
    """A kernel's name without what it is instantiated with: `vectorized_elementwise_kernel`."""
    name = kernel.removeprefix("void ").replace("(anonymous namespace)::", "")
    inner = re.search(r"at::native::(?:\w+::)*(\w+(?:Functor|Op|Kernel\w*|_kernel_cuda\w*))", name[5:])
    head = _TEMPLATE.sub("", name).rpartition("::")[2] or name[:60]
    return f"{head} ({inner.group(1)})" if inner and inner.group(1) != head else head


_COLLECTIVE = re.compile(
    r"(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|send_?recv|reduce)", re.IGNORECASE
)


def collective(kernel: str) -> str:
    """Which collective a kernel does, by its name: `allreduce`; "communication" where that does not say."""
    match = _COLLECTIVE.search(kernel)
    return match.group(1).lower().replace("_", "") if match else "communication"
