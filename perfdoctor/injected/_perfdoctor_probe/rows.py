"""Numbers, names and shapes as the rows of windows and timings have them."""

from math import prod

FLOATING = {"float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16"}
"""The profiler's names of types -> torch's."""
COMPLEX = {"c10::complex<float>": "complex64", "c10::complex<double>": "complex128"}
"""The same, of pairs of such numbers."""


def rounded(value: float) -> float:
    """To six digits that count: no clock is better, and recordings stay small."""
    return float(f"{value:.6g}")


def milliseconds(ns: float, steps: int = 1) -> float:
    """Of each of the steps in which `ns` nanoseconds went by."""
    return rounded(ns / steps / 1e6)


def operator(name: str) -> str:
    """`mm`, for `aten::mm`."""
    return name[6:] if name.startswith("aten::") else name


def shown(shapes) -> str:
    """`[64, 256] [256, 512]`; scalars and absent arguments are left out."""
    return " ".join(str(list(shape)) for shape in shapes if shape)


def elements(shape) -> int:
    """Of a tensor; 0 for what is no shape of one (a scalar, an argument that is absent)."""
    return prod(size if isinstance(size, int) else 0 for size in shape) if shape else 0
