"""The same inputs without the padding that no sequence of the batch needs, and as long as the sequences are on average.

Padding is told by the numbers themselves: at the end of all rows of a batch of tokens, or at their beginning, the same
number stands over and over, and so it does in the masks beside them. Sequences of other numbers (frames of a recording)
are cut with them, where they are as long; without tokens beside them, at their end, where that comes at a place of its
own in each row.
"""

import torch

_LEAST = 16
"""Tokens of a row: shorter ones are no sequences, but labels or features."""
_ROWS = 4
"""Of numbers that are no tokens: two rows that end in zeros may do so by chance."""
_UNUSED = 0.1
"""Of a row, at each end: a number that begins or ends all sequences of a small batch alike is no padding."""
_MOSTLY = 0.7
"""Of the longest row: where rows have more on average, batches of like length save little."""
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.bool)


class Cut:
    """Where the sequences of a batch begin and end."""

    __slots__ = ("ends", "first", "last", "length", "rows")

    def __init__(self, rows: int, length: int, first: int, last: int, ends: "dict[int, int] | None" = None) -> None:
        self.rows = rows
        self.length = length
        self.first = first
        self.last = last
        self.ends = ends
        """Where only some tensors are cut, each at an end of its own: by the address of their numbers."""

    @property
    def needed(self) -> int:
        return self.last - self.first

    def of(self, tensor):
        """The same part of a tensor: of each dimension as long as the sequences, but for the one of samples. Numbers
        that can only be lengths of rows end where the rows do."""
        if self.ends is not None:
            return tensor.narrow(1, 0, self.ends[tensor.data_ptr()]) if tensor.data_ptr() in self.ends else tensor
        if tensor.dim() == 1 and tensor.dtype in _WHOLE and tensor.shape[0] == self.rows != self.length:
            is_lengths = tensor.dtype != torch.bool and self.needed < int(tensor.max()) <= self.length
            return tensor.clamp(max=self.needed) if is_lengths else tensor
        for dim in range(tensor.dim()):
            is_samples = dim == 0 and tensor.shape[0] == self.rows
            if tensor.shape[dim] == self.length and not is_samples:
                tensor = tensor.narrow(dim, self.first, self.needed)
        return tensor


def are_sequences(tensors: list) -> bool:
    """Whether rows of a batch like this one may have padding."""
    return bool(_sequences(tensors)) or any(_lengths_of_frames(one) for one in tensors)


def needed(tensors: list) -> float:
    """The share of the sequences' length that the longest one of the batch has."""
    found = cut(tensors)
    return found.needed / found.length if found else 1.0


def cut(tensors: list) -> "Cut | None":
    """By all that a module is called with; None where there are no tokens, or next to no padding."""
    varied = _sequences(tensors)
    if not varied:
        return _of_frames(tensors, typically=False)
    rows, length = varied[0].shape
    before, after = (min(_constant(side) for side in sides) for sides in (varied, [one.flip(1) for one in varied]))
    first, last = (count if count >= _UNUSED * length else 0 for count in (before, after))
    found = Cut(rows, length, first, length - last)
    return found if 0 < found.needed < length else _each_at_its_own(varied)


def _each_at_its_own(varied: list) -> "Cut | None":
    """Of tensors that need not go together, such as questions and texts padded alike: those that have padding."""
    rows, length = varied[0].shape
    padding = {one.data_ptr(): _constant(one.flip(1)) for one in varied}
    ends = {at: length - count for at, count in padding.items() if _UNUSED * length <= count < length}
    return Cut(rows, length, 0, min(ends.values()), ends) if ends else None


def typical(tensors: list) -> "Cut | None":
    """The beginnings of all rows, as long as they are on average without their own padding: what a batch of samples of
    like length takes. None where most of what all rows together need is needed by each."""
    varied = _sequences(tensors)
    if not varied:
        return _of_frames(tensors, typically=True)
    length = varied[0].shape[1]
    padding = [_of_each_row(one) for one in varied]
    # Masks and labels end where the tokens do; what is shorter is told by the numbers that go on.
    return _mean_of(length - torch.stack(padding).amin(0), length)


def _mean_of(own, length: int) -> "Cut | None":
    """By the lengths of all rows."""
    rows = own.shape[0]
    mean = -(-int(own.sum()) // rows)
    return Cut(rows, length, 0, mean) if 0 < mean <= _MOSTLY * int(own.max()) else None


def _of_frames(tensors: list, typically: bool) -> "Cut | None":
    """By the largest tensor of sequences that are no tokens."""
    padded = [found for one in tensors for found in _lengths_of_frames(one)]
    if not padded:
        return None
    own, length = max(padded, key=lambda found: found[0].shape[0] * found[1])
    if typically:
        return _mean_of(own, length)
    longest = int(own.max())
    return Cut(own.shape[0], length, 0, longest) if length - longest >= _UNUSED * length else None


def _lengths_of_frames(tensor) -> "list[tuple]":
    """How long each row is without the number that most rows end in, and the length of all; for each dimension that may
    be time. Without rows of several lengths what ends alike is no padding: a margin, or features that nobody has."""
    if not tensor.is_floating_point() or tensor.dim() not in (2, 3) or tensor.shape[0] < _ROWS:
        return []
    found = []
    for dim in range(1, tensor.dim()):
        length = tensor.shape[dim]
        if length < _LEAST or tuple(tensor.shape).count(length) > 1:
            continue
        frames = tensor.transpose(1, dim).flatten(2) if tensor.dim() == 3 else tensor.unsqueeze(2)
        padding = frames[:, -1].flatten().mode().values
        others = (frames != padding).any(2)
        own = torch.where(others.any(1), length - others.flip(1).int().argmax(1), 0)
        if int((own < length).sum()) > tensor.shape[0] // 2 and own.unique().numel() > 2:
            found.append((own, length))
    return found


def _sequences(tensors: list) -> list:
    """The tokens, and the masks of them; empty where there are none."""
    tokens = [one for one in tensors if _are_tokens(one)]
    shapes = {tuple(one.shape) for one in tokens}
    if len(shapes) != 1:
        return []
    rows, length = shapes.pop()
    # Sizes that are alike by chance cannot be told apart: a hidden layer as wide as the sequences are long.
    if rows == length or any(tuple(one.shape[2:]).count(length) == 1 for one in tensors if one.is_floating_point()):
        return []
    varied = [one for one in tokens if not torch.equal(one, one[:1].expand_as(one))]
    # Of a mask alone it is not known which of its two numbers stands for padding.
    return varied if any(one.unique().numel() > 2 for one in varied) else []


def _of_each_row(tokens):
    """How often each row ends in the number that most rows end in; how many numbers that are."""
    ends = tokens[:, -1].mode().values
    others = (tokens != ends).flip(1)
    return torch.where(others.any(1), others.int().argmax(1), tokens.shape[1])


def _are_tokens(tensor) -> bool:
    """Or a mask of them."""
    return tensor.dtype in _WHOLE and tensor.dim() == 2 and tensor.shape[0] > 1 and tensor.shape[1] >= _LEAST


def _constant(tokens) -> int:
    """Columns from the first one on in which there is nothing but the number that it begins with."""
    other = (tokens != tokens[0, 0]).any(0).nonzero()
    return int(other[0]) if other.numel() else tokens.shape[1]
