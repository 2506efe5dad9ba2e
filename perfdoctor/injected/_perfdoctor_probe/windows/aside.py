"""What steps compute aside: operators of whose results training needs nothing.

Each operator's result is followed into the operators that read it. Training needs what a backward pass goes through,
what optimizers and the making of batches read, what is written to memory that was there before, and all that leads
there; and it may need what leaves torch as more than a few numbers (`numpy()`, `tolist()`, a pickle), or outlives the
steps that are watched. What is left ends in single numbers that are read or kept (a metric), or in tensors that nobody
reads at all. What is made of gradients is the business of `gradients`. What is multiplied by 0 (`weighted`) training
does not need either, though its backward pass goes through that.

Not followed are numbers that come back: an agent acts on what it reads, and is told of the world by arrays. So nothing
is told of steps that read arrays from elsewhere and no loader. A whole number that is no count (`argmax`) may choose
something, and counts as needed.
"""

import functools
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import timeline as parts
from ..changes import Changes
from ..hooks.held_out import tensors

_FEW = 16
"""Numbers that are a metric, if nobody reads them or if they are kept: a value for each of some classes."""
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
"""Operators that tell Python a number."""
_LEAVES = ("__array__", "__dlpack__", "__reduce_ex__", "data_ptr", "numpy", "tolist")
"""Methods of tensors that hand their numbers to others."""
_BEGINS_BACKWARD = torch.ops.aten.ones_like.default
"""A pass backwards begins with it, of the loss."""
_PRODUCTS = (torch.ops.aten.mul.Tensor, torch.ops.aten.mul.Scalar)
"""Operators that may multiply by 0."""
_COUNTS = {"add", "count_nonzero", "mul", "sub", "sum"}
"""Operators that make whole numbers which choose nothing."""


class Seen(NamedTuple):
    """What is known of a call of an operator."""

    made: object
    """Its row in the window; None of one that reads no tensor, and of one that is not `is_judged`."""
    is_judged: bool
    """It is a part of the job's own computing, forwards."""
    is_pure: bool
    """It does nothing but compute."""
    has_node: bool
    """A backward pass may go through it."""


class _Computed:
    """A call of an operator, with results that are followed."""

    __slots__ = (
        "held",
        "is_dark",
        "is_needed",
        "is_read",
        "is_told",
        "is_void",
        "leaves",
        "numbers",
        "of_backward",
        "seen",
        "sources",
    )

    def __init__(self, seen: Seen, sources: "list[_Computed]", is_needed: bool) -> None:
        self.seen = seen
        self.sources = sources
        """Calls that made what it reads."""
        self.is_needed = is_needed
        self.of_backward = torch._C._current_graph_task_id() >= 0
        self.is_read = False
        """By another operator."""
        self.is_told = False
        """Python was told a number of it, or of what was made of it."""
        self.leaves = False
        """Its result was handed to others."""
        self.is_dark = False
        """Its result has no graph and is not read on this thread, or so it is with all that was made of it: another
        thread may read it."""
        self.is_void = False
        """It multiplies by 0."""
        self.numbers = 0
        """Of its largest result."""
        self.held: "list[tuple[int, StorageWeakRef]]" = []
        """Its results: how many numbers each has, and its storage."""

    def ends_in_training(self) -> bool:
        """By itself, whatever is made of it."""
        made = self.seen.made
        if made is None or self.is_needed or (made.node is not None and made.node.task >= 0):
            return True
        if any(source.of_backward for source in self.sources):
            return True
        kept = [numbers for numbers, storage in self.held if not storage.expired()]
        if kept and (made.node is not None or max(kept) > _FEW):
            return True
        return self.leaves and self.numbers > _FEW


class _Stored(NamedTuple):
    """A storage."""

    reference: StorageWeakRef
    """While it is there, no other storage has its address."""
    maker: "_Computed | None"
    """Who has written it last, if that was seen."""
    is_outside: bool
    """It was there before, or is none of a forward pass."""


class Aside:
    """Follows what steps compute, by the storages that hold it."""

    def __init__(self, timeline, values) -> None:
        self.timeline = timeline
        self.values = values
        self.began = timeline.step
        self.calls_seen: "list[_Computed]" = []
        self.stored: "dict[int, _Stored]" = {}
        """By address."""
        self.changes = Changes()
        self.is_told_by_arrays = False

    def open(self) -> None:
        """Listen to what hands numbers to others."""
        for name in _LEAVES:
            self.changes.put(torch.Tensor, name, self._handing_over(getattr(torch.Tensor, name)))

    def close(self) -> None:
        """Put it back."""
        self.changes.take_back()

    def _handing_over(self, original):
        @functools.wraps(original)
        def call(tensor, *args, **kwargs):
            try:
                self._leaves(tensor)
            except Exception:  # a tensor of an exotic kind: it is followed no further than until here
                pass
            return original(tensor, *args, **kwargs)

        return call

    def _leaves(self, tensor) -> None:
        with torch._C.DisableTorchFunction():
            known = self.stored.get(tensor.untyped_storage()._cdata)
        if known is not None and known.maker is not None:
            known.maker.leaves = True

    def ended(self, func, args, kwargs, result, seen: Seen) -> None:
        """An operator has run."""
        sources = self._sources((args, kwargs))
        if func.is_view:
            return
        for source in sources:
            source.is_read = True
        if self.timeline.stack[-1] == parts.LOGGING:
            for source in sources:
                source.is_told = True
            return
        if func in _READS:
            is_whole = not (args[0].is_floating_point() or args[0].is_complex() or args[0].dtype is torch.bool)
            for source in sources:
                source.is_told = True
                source.is_needed = source.is_needed or (is_whole and _name(source.seen.made) not in _COUNTS)
            return
        written = set(self.values.written(func, args, kwargs))
        computed = _Computed(seen, sources, func is _BEGINS_BACKWARD or self._is_needed(seen, written))
        computed.is_void = func in _PRODUCTS and seen.has_node and any(map(_is_zero, args))
        self.calls_seen.append(computed)
        read = {one.untyped_storage()._cdata for one in tensors((args, kwargs))} - written
        for one in tensors((result, args, kwargs) if written else result):
            storage = one.untyped_storage()
            if storage._cdata not in read:
                known = self.stored.get(storage._cdata)
                is_outside = known.is_outside if known is not None else not seen.is_judged
                stored = _Stored(StorageWeakRef(storage), computed, is_outside)
                self.stored[storage._cdata] = stored
                computed.held.append((one.numel(), stored.reference))
                computed.numbers = max(computed.numbers, one.numel())

    def _is_needed(self, seen: Seen, written: "set[int]") -> bool:
        """Whether it is more than computing, or changes what no forward pass has made."""
        if seen.made is None or not seen.is_pure or (seen.has_node and seen.made.node is None):
            return True
        return any(address not in self.stored or self.stored[address].is_outside for address in written)

    def _sources(self, value) -> "list[_Computed]":
        """The calls that made the tensors in it; what nobody has made is known from now on."""
        found: "dict[int, _Computed]" = {}
        for one in tensors(value):
            storage = one.untyped_storage()
            known = self.stored.get(storage._cdata)
            if known is None:
                self._comes_from_elsewhere(one)
                known = self.stored[storage._cdata] = _Stored(StorageWeakRef(storage), None, True)
            if known.maker is not None:
                found[id(known.maker)] = known.maker
        return list(found.values())

    def _comes_from_elsewhere(self, tensor) -> None:
        by_loader = self.timeline.spent[parts.INPUT] or self.timeline.stack[-1] == parts.INPUT
        if self.timeline.step > self.began and tensor.numel() > 1 and not by_loader:
            self.is_told_by_arrays = True

    @staticmethod
    def _is_kept(one: _Computed) -> bool:
        """Whether its few numbers are there still, for somebody to look at."""
        return any(not storage.expired() for _, storage in one.held)

    def weighted(self) -> "list[tuple]":
        """Calls of which nothing with a graph is made but a product with 0: the row of that, their own, and whether
        somebody looks at what they compute. To be asked before `calls`."""
        readers: "dict[int, list[_Computed]]" = {}
        leads: "dict[int, tuple[_Computed, bool]]" = {}
        found = []
        for one in reversed(self.calls_seen):
            if one.of_backward:
                continue
            seen = readers.get(id(one), [])
            with_graph = [other for other in seen if other.seen.has_node]
            to_zero = [leads.get(id(other)) for other in with_graph]
            if one.is_void:
                leads[id(one)] = one, False
            elif one.seen.made is not None and to_zero and None not in to_zero:
                is_read = one.is_told or one.leaves or len(with_graph) < len(seen)
                product, is_read = to_zero[0][0], is_read or any(read for _, read in to_zero)
                leads[id(one)] = product, is_read
                found.append((product.seen.made, one.seen.made, is_read))
            for source in one.sources:
                readers.setdefault(id(source), []).append(one)
        return [row for row in found if row[0] is not None]

    def calls(self) -> "dict[str, list]":
        """Those that end in numbers (`metrics`), and those that end in nothing (`unused`): their rows, and how many
        numbers each makes."""
        found: "dict[str, list]" = {"metrics": [], "unused": []}
        needed: "set[int]" = set()
        for one in reversed(() if self.is_told_by_arrays else self.calls_seen):
            if id(one) in needed or one.ends_in_training():
                needed.update(map(id, one.sources))
                continue
            is_told = one.is_told or one.leaves or (not one.is_read and self._is_kept(one))
            is_dark = one.is_dark or (not one.is_read and not one.seen.has_node)
            for source in one.sources:
                source.is_told = source.is_told or is_told
                source.is_dark = source.is_dark or is_dark
            if is_told or not is_dark:
                found["metrics" if is_told else "unused"].append((one.seen.made, one.numbers))
        return found


def _is_zero(factor) -> bool:
    """A number, or a tensor of one number that does not learn."""
    if isinstance(factor, torch.Tensor):
        if factor.dim() or factor.requires_grad or factor.device.type != "cpu":
            return False
        factor = torch._C.TensorBase.item(factor)
    return isinstance(factor, (int, float)) and factor == 0


def _name(made) -> str:
    """`argmax`"""
    return made.func._schema.name.partition("::")[2] if made is not None else ""
