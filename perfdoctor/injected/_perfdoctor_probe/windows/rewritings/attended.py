"""Attention whose mask lets each position see its own group alone: windows of a picture, texts packed into one row."""

import torch

from .followed import Other

_aten = torch.ops.aten
ATTENTION = _aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = _aten._scaled_dot_product_flash_attention_for_cpu_backward.default
_LEAST, _MOST = 32, 1 << 22
"""Positions, and numbers of a mask that is looked through."""
_LEAST_GROUPS = 4
"""Of equal size: with fewer there is less to gain than moving positions takes."""
_HIDES = -1e4
"""Added to a score: what is no larger leaves nothing of it."""
_QUERY, _KEY, _, _DROPOUT = range(4)


def in_groups(args: tuple, kwargs: dict, result) -> "Other | None":
    """The same for each group by itself, without a mask."""
    mask, query, key = kwargs.get("attn_mask"), args[_QUERY], args[_KEY]
    dropout, is_causal, *_ = *args[_DROPOUT:], 0.0, False
    if mask is None or is_causal or query.shape[2] != key.shape[2] or query.shape[1] != key.shape[1]:
        return None
    groups = _groups(mask, query.shape[2])
    if groups is None:
        return None
    count, order, back = groups
    scale = kwargs.get("scale")
    samples, heads, positions, _ = query.shape

    def apart(tensor):
        moved = tensor if order is None else tensor.index_select(2, order)
        return moved.reshape(samples, heads * count, positions // count, tensor.shape[3])

    def together(tensor):
        made = tensor.reshape(samples, heads, positions, tensor.shape[3])
        return made if order is None else made.index_select(2, back)

    made: list = []

    def make():
        parts = [apart(one) for one in args[:_DROPOUT]]
        made[:] = [*parts, *ATTENTION(*parts, dropout, False, scale=scale)]
        return together(made[3])

    def backward(gradient) -> list:
        return [together(one) for one in _BACKWARD(apart(gradient), *made, dropout, False, scale=scale)]

    return Other("attended", make, [], (positions, positions), backward=backward, instead_of=result[0])


def _groups(mask, positions: int) -> "tuple | None":
    """How many there are, in which order their positions lie side by side, and the way back; None for both where they
    do. None where a mask says anything else: other sizes, more for some samples, or a bias."""
    if not positions >= _LEAST or mask.shape[-2:] != (positions, positions) or positions**2 > _MOST:
        return None
    if any(size > 1 and step for size, step in zip(mask.shape[:-2], mask.stride()[:-2])):
        return None
    one = mask[(0,) * (mask.dim() - 2)]
    seen = one if one.dtype is torch.bool else one == 0
    own = seen.int().argmax(1)
    firsts, numbers, sizes = own.unique(return_inverse=True, return_counts=True)
    count = len(firsts)
    if count < _LEAST_GROUPS or not torch.equal(sizes, sizes[:1].expand_as(sizes)):
        return None
    if not torch.equal(seen, own[:, None] == own) or (seen is not one and bool((one[~seen] > _HIDES).any())):
        return None
    order = numbers.argsort(stable=True)
    if torch.equal(order, torch.arange(positions, device=order.device)):
        return count, None, None
    return count, order, order.argsort()
