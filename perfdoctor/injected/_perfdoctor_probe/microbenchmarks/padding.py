"""The same inputs without the padding that no sequence of the batch needs.

Padding is told by the numbers themselves: at the end of all rows of a batch of tokens, or at their beginning, the same
number stands over and over, and so it does in the masks beside them. Sequences of other numbers than tokens are cut
with them, where they are as long.
"""

import torch

_LEAST = 16
"""Tokens of a row: shorter ones are no sequences, but labels or features."""
_UNUSED = 0.1
"""Of a row, at each end: a number that begins or ends all sequences of a small batch alike is no padding."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


class Cut:
    """Where the sequences of a batch begin and end."""

    __slots__ = ("first", "last", "length", "rows")

    def __init__(self, rows: int, length: int, first: int, last: int) -> None:
        self.rows = rows
        self.length = length
        self.first = first
        self.last = last

    @property
    def needed(self) -> int:
        return self.last - self.first

    def of(self, tensor):
        """The same part of a tensor: of each dimension as long as the sequences, but for the one of samples."""
        for dim in range(tensor.dim()):
            is_samples = dim == 0 and tensor.shape[0] == self.rows
            if tensor.shape[dim] == self.length and not is_samples:
                tensor = tensor.narrow(dim, self.first, self.needed)
        return tensor


def cut(tensors: list) -> "Cut | None":
    """By all that a module is called with; None where there are no tokens, or next to no padding."""
    tokens = [one for one in tensors if _are_tokens(one)]
    shapes = {tuple(one.shape) for one in tokens}
    if len(shapes) != 1:
        return None
    rows, length = shapes.pop()
    # Sizes that are alike by chance cannot be told apart: a hidden layer as wide as the sequences are long.
    if rows == length or any(tuple(one.shape[2:]).count(length) == 1 for one in tensors if one.is_floating_point()):
        return None
    varied = [one for one in tokens if not torch.equal(one, one[:1].expand_as(one))]
    # Of a mask alone it is not known which of its two numbers stands for padding.
    if not any(one.unique().numel() > 2 for one in varied):
        return None
    before, after = (min(_constant(side) for side in sides) for sides in (varied, [one.flip(1) for one in varied]))
    first, last = (count if count >= _UNUSED * length else 0 for count in (before, after))
    found = Cut(rows, length, first, length - last)
    return found if 0 < found.needed < length else None


def _are_tokens(tensor) -> bool:
    """Or a mask of them."""
    return tensor.dtype in _WHOLE and tensor.dim() == 2 and tensor.shape[0] > 1 and tensor.shape[1] >= _LEAST


def _constant(tokens) -> int:
    """Columns from the first one on in which there is nothing but the number that it begins with."""
    other = (tokens != tokens[0, 0]).any(0).nonzero()
    return int(other[0]) if other.numel() else tokens.shape[1]
