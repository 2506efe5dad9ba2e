"""Inverses that are only multiplied with, and what is computed of triangular matrices as of any others."""

from math import prod

import torch

from .followed import Link, Other

_aten = torch.ops.aten
INVERSE = _aten.linalg_inv_ex.default
OF_MATRICES = (_aten._linalg_slogdet.default, _aten._linalg_det.default, INVERSE)


def solved_at_once(args: tuple, known) -> "Other | None":
    """`inverse(a) @ b` and `b @ inverse(a)` as the solution of a system of equations."""
    for side in (0, 1):
        found = known(args[side])
        if found is None or found.func is not INVERSE:
            continue
        turned = _is_turned(args[side], found)
        if turned is None:
            continue
        side_length = found.shape[-1]
        a, b = found.args[0], args[1 - side]
        a = a if a.dim() == b.dim() else a.reshape(-1, side_length, side_length)
        make, backward = _ways(a.mT if turned else a, b, left=side == 0)
        return Other("inverse", make, [found], found.shape, backward, is_ill_conditioned=True)
    return None


def _is_turned(tensor, found: Link) -> "bool | None":
    """Whether it is the transposed inverse; None where it is something else of it, or copies."""
    if tensor.storage_offset() or tensor.numel() != prod(found.shape):
        return None
    rows, columns = tensor.stride()[-2:]
    if (rows, columns) == found.strides[-2:]:
        return False
    return True if (columns, rows) == found.strides[-2:] else None


def _ways(a, b, left: bool):
    def make():
        return torch.linalg.solve(a, b, left=left)

    def backward(gradient):
        return torch.linalg.solve(a.mT, gradient, left=left)

    return make, backward


def of_triangles(func, args: tuple, result) -> "Other | None":
    """Of triangular matrices: the determinant is that of the diagonal, and the inverse is substituted for."""
    matrices = args[0]
    upper = _are_upper(matrices)
    if upper is None:
        return None
    if func is INVERSE:
        make, backward = _substituted(matrices, upper)
        return Other("triangular-inverse", make, [], matrices.shape, backward, instead_of=result[0])
    diagonal = matrices.diagonal(dim1=-2, dim2=-1)
    is_log = func is _aten._linalg_slogdet.default
    return Other(
        "triangular-determinant",
        (lambda: diagonal.abs().log().sum(-1)) if is_log else (lambda: diagonal.prod(-1)),
        [],
        matrices.shape,
        instead_of=result[1] if is_log else result[0],
        backward=lambda _: diagonal.reciprocal().diag_embed(),
    )


def _substituted(matrices, upper: bool):
    def make():
        unit = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        return torch.linalg.solve_triangular(matrices, unit.expand_as(matrices), upper=upper)

    def backward(inverse):
        return inverse.mT @ inverse @ inverse.mT

    return make, backward


def _are_upper(matrices) -> "bool | None":
    """Whether they are upper triangular, and no lower ones; None where they are neither."""
    if matrices.dim() < 2 or matrices.shape[-1] < 2 or matrices.shape[-2] != matrices.shape[-1]:
        return None
    if not matrices.triu(1).any():
        return False
    return None if matrices.tril(-1).any() else True
