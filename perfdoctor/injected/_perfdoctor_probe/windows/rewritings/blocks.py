"""Products with a matrix whose numbers lie in blocks along its diagonal: graphs that were put into one, say."""

import torch

from .followed import Other

_LEAST_SIDE = 64
"""Rows of a matrix that is looked through."""
_FEWER = 0.5
"""Of the multiplications, at most, block by block."""


def one_by_one(left, right, bias) -> "Other | None":
    """`block_diag(*blocks) @ x` as `stack(blocks) @ x` of each block's own rows; blocks that are smaller than the
    largest share one with their neighbours, and the rest of it is filled up with zeros."""
    rows, columns = left.shape
    if rows != columns or rows < _LEAST_SIDE or right.dim() != 2:
        return None
    spans = _spans(left)
    side = max(end - start for start, end in spans)
    if len(spans) * side * side > _FEWER * rows * rows:
        return None
    starts = torch.tensor([start for start, _ in spans], device=left.device)
    sizes = torch.tensor([end - start for start, end in spans], device=left.device)
    within = torch.arange(side, device=left.device)
    is_there = within < sizes[:, None]
    places = (starts[:, None] + within).clamp_max(rows - 1)
    blocks = left[places[:, :, None], places[:, None, :]] * (is_there[:, :, None] & is_there[:, None, :])
    full = bool(is_there.all())

    def product(matrices, numbers):
        width = numbers.shape[-1]
        apart = numbers.reshape(-1, side, width) if full else numbers[places]
        made = matrices @ apart
        return made.reshape(-1, width) if full else made[is_there]

    def make():
        made = product(blocks, right)
        return made if bias is None else made + bias

    return Other("blocks", make, [], left.shape, backward=lambda gradient: product(blocks.transpose(1, 2), gradient))


def _spans(matrix) -> "list[tuple[int, int]]":
    """Where blocks start and end: rows that share columns lie in one; neighbours are put together up to the largest."""
    rows = len(matrix)
    own = torch.arange(rows, device=matrix.device)
    down, right = matrix.nonzero(as_tuple=True)
    # As far as what a row, or a column, has to do with reaches.
    reach = own.scatter_reduce(0, torch.minimum(down, right), torch.maximum(down, right), "amax")
    ends = [int(at) + 1 for at in (reach.cummax(0).values == own).nonzero()]
    starts = [0, *ends[:-1]]
    largest = max(end - start for start, end in zip(starts, ends))
    spans: "list[tuple[int, int]]" = []
    for start, end in zip(starts, ends):
        if spans and end - spans[-1][0] <= largest:
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans
