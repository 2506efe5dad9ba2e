"""Fourier transforms of lengths that are made of large primes, where a length nearby would do."""

import torch

from .followed import Other

_aten = torch.ops.aten
_TO_REAL = _aten._fft_c2r.default
TRANSFORMS = (_aten._fft_r2c.default, _aten._fft_c2c.default, _TO_REAL)
_PRIMES = (2, 3, 5, 7)
"""Libraries have kernels for these, and for few larger ones."""
_LEAST = 32
_NEAR = 0.05
"""Of a length, what a shorter one may lack."""


def shorter(func, args: tuple) -> "Other | None":
    """A transform of fewer numbers: no more than a twentieth less, along each dimension that is awkward."""
    tensor, dims = args[:2]
    to_real = func is _TO_REAL
    lengths = {dim: tensor.shape[dim] for dim in dims}
    if to_real:
        lengths[dims[-1]] = args[3]
    others = {dim: _smooth(length) for dim, length in lengths.items()}
    if others == lengths or None in others.values():
        return None
    rest = (*args[1:3], others[dims[-1]]) if to_real else args[1:]
    cut: list = []

    def make():
        if not cut:
            cut.append(_cut(tensor, others, dims[-1] if to_real else None))
        return func(cut[0], *rest)

    longest = max(lengths[dim] for dim in dims if lengths[dim] != others[dim])
    return Other("transform", make, [], (longest,), instead_of=False)


def _cut(tensor, lengths: dict, half: "int | None"):
    """Of the dimension `half` the numbers up to the middle are given."""
    for dim, length in lengths.items():
        tensor = tensor.narrow(dim, 0, length // 2 + 1 if dim == half else length)
    return tensor.contiguous()


def _smooth(length: int) -> "int | None":
    """The longest one up to `length` that is made of small primes; None where none is near."""
    if length < _LEAST:
        return length
    return next((one for one in range(length, int((1 - _NEAR) * length), -1) if _is_smooth(one)), None)


def _is_smooth(length: int) -> bool:
    for prime in _PRIMES:
        while length % prime == 0:
            length //= prime
    return length == 1
