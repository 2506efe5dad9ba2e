"""Fourier transforms of lengths that are made of large primes, where a length nearby would do; and of real numbers as
if they were complex, where one half of the spectrum says what the other half does."""

import torch

from .followed import COMPLEX_TRANSFORM, MADE_COMPLEX, PADDED, Link, Other

_aten = torch.ops.aten
_TO_REAL, _OF_REAL = _aten._fft_c2r.default, _aten._fft_r2c.default
TRANSFORMS = (_OF_REAL, COMPLEX_TRANSFORM, _TO_REAL)
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


def of_real(func, args: tuple, known) -> "Other | None":
    """A transform of real numbers, made complex for it or not, whose whole spectrum is made. Whether half of it will do
    is for who reads it to say (`real_part`)."""
    tensor, dims, norm, last = args
    real, links = (lambda: tensor), []
    if func is COMPLEX_TRANSFORM and last:
        found = known(tensor)
        if found is None or found.func not in (MADE_COMPLEX, PADDED) or found.shape != tuple(tensor.shape):
            return None
        real, links = _before(found)
    elif func is not _OF_REAL or last:
        return None

    def make():
        return _OF_REAL(real(), dims, norm, True)

    def back(half):
        return _TO_REAL(half, dims, norm, tensor.shape[dims[-1]])

    return Other("half-transform", make, links, tensor.shape, back, instead_of=False)


def _before(found: Link) -> tuple:
    """What makes the real numbers of a tensor that was made complex, and maybe padded then; and the links of both."""
    if found.source is None or found.func is MADE_COMPLEX:
        return lambda: found.args[0], [found]
    real, pads = found.source.args[0], found.args[1:]
    return lambda: PADDED(real, *pads), [found.source, found]


def real_part(found: Link, tensor) -> "Other | None":
    """A transform back of which the real part is read: where the spectrum's halves are conjugates, half of it makes it.
    What comes out is compared, so another spectrum is no matter."""
    if not found.args or tensor.is_complex() or tensor.storage_offset() % 2:
        return None
    spectrum, dims, norm, forwards = found.args
    if forwards or any(stride % 2 for stride in tensor.stride()):
        return None
    length = spectrum.shape[dims[-1]]
    half = spectrum.narrow(dims[-1], 0, length // 2 + 1)
    shape, strides = tensor.shape, [stride // 2 for stride in tensor.stride()]

    def make():
        whole = _TO_REAL(half, dims, norm, length)
        if whole.stride() != found.strides:
            whole = torch.empty_strided(found.shape, found.strides, dtype=whole.dtype).copy_(whole)
        return whole.as_strided(shape, strides, tensor.storage_offset() // 2)

    def back(_):
        return _OF_REAL(tensor.new_zeros(found.shape), dims, norm, True)

    return Other("real-transform", make, [found], found.shape, back, tensor, part=("real",))
