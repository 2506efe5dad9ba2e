"""Copies that nobody needs: while one is there, nothing is written to it, nor to what it is a copy of, so that whoever
reads it could read that."""

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..rows import milliseconds
from .calls_seen import passed_ns
from .equivalents import row

_CLONE = torch.ops.aten.clone.default
_LEAST_BYTES = 1 << 18
"""Of one: a smaller one takes some 20 us."""
_MOST = 4_096


class _Copy:
    __slots__ = ("is_needed", "made", "reference", "shape")

    def __init__(self, made, result) -> None:
        self.made = made
        self.reference = StorageWeakRef(result.untyped_storage())
        self.shape = tuple(result.shape)
        self.is_needed = False


class Copies:
    """Of the steps of a window."""

    def __init__(self) -> None:
        self.seen: "list[_Copy]" = []
        self.by_storage: "dict[int, list[_Copy]]" = {}
        """Of both, by the number of the storage."""

    def ended(self, made, args: tuple, result, by_library: bool) -> None:
        """A call, forwards, has returned; what a library copies is not the job's to change."""
        if made.func is not _CLONE or by_library or not made.stack or len(self.seen) >= _MOST:
            return
        source = args[0]
        if source.untyped_storage().nbytes() < _LEAST_BYTES or result.untyped_storage().nbytes() < _LEAST_BYTES:
            return
        if source.stride() != result.stride():
            return  # it lies in memory in another way
        copy = _Copy(made, result)
        self.seen.append(copy)
        for tensor in (source, result):
            self.by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(copy)

    def written(self, storages: "list[int]") -> None:
        """Something was written to these."""
        for storage in storages:
            for copy in self.by_storage.get(storage, ()):
                copy.is_needed = copy.is_needed or not copy.reference.expired()

    def rows(self, steps: int, sites) -> "list[dict]":
        """By line, per step of `steps`; those that make one in each, of which none was needed, and none is left but one
        of the last step."""
        lines: "dict[tuple, list[_Copy]]" = {}
        for copy in self.seen:
            lines.setdefault(copy.made.stack[-1], []).append(copy)
        return [self._row(line, copies, steps, sites) for line, copies in lines.items() if _are_needless(copies, steps)]

    @staticmethod
    def _row(line: tuple, copies: "list[_Copy]", steps: int, sites) -> dict:
        made = [one.made for one in copies]
        longest = max(copies, key=lambda one: one.made.spent_ns)
        now_ms = milliseconds(sum(one.spent_ns for one in made), steps), milliseconds(sum(map(passed_ns, made)), steps)
        return row("copied", sites.number((*line, None)), len(copies) / steps, longest.shape, now_ms, (0.0, 0.0))


def _are_needless(copies: "list[_Copy]", steps: int) -> bool:
    left = {one.made.step for one in copies if not one.reference.expired()}
    if any(one.is_needed for one in copies) or not left <= ({steps - 1} if steps > 1 else set()):
        return False
    return len({one.made.step for one in copies}) >= steps
