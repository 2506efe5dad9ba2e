"""Which values are equal for certain: tensors are known by what made them of what, not by what they hold.

What a storage holds has a number. An operator that is called with the same numbers, places, types and constants as
before makes the same values, so what it makes gets the number that it got then. A write makes a new number, and so does
a version that nobody was seen to make. Random operators make values that were never there before, and so does all that
is not torch's own. Batch normalisation in training makes the same of the same batch, whatever its statistics are; these
are others afterwards.

Of a storage only a weak reference is kept: its memory goes when the job lets it go, and its address is no other's while
the reference is there.
"""

import itertools

import torch
from torch.multiprocessing.reductions import StorageWeakRef

_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Of another class, what a tensor stands for is not known."""
_NUMBERS = (int, bool, str, type(None))
_NAMED = (torch.dtype, torch.layout, torch.device, torch.memory_format)
_DROPOUTS = ("dropout_p", "dropout")
"""Arguments that say that an operator draws no random numbers if they are 0."""
_STATISTICS = ("running_mean", "running_var")
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


class _UnknownError(Exception):
    """An argument that is neither a plain tensor nor a constant."""


class _Operator:
    """What a call of it does beside its result."""

    __slots__ = ("drops", "is_pure", "is_torchs", "keeps", "names", "writes")

    def __init__(self, func) -> None:
        schema = func._schema
        self.names = [one.name for one in schema.arguments]
        self.is_torchs = schema.name.startswith("aten::")
        self.writes = [
            (at, one.name)
            for at, one in enumerate(schema.arguments)
            if one.alias_info is not None and one.alias_info.is_write
        ]
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        self.drops = next((name for name in _DROPOUTS if is_random and name in self.names), "")
        """The argument that says whether it is random."""
        self.is_pure = self.is_torchs and (not is_random or bool(self.drops)) and "empty" not in schema.name
        training = next((name for name in ("training", "train") if name in self.names), "")
        self.keeps = training if "running_mean" in self.names and "backward" not in schema.name else ""
        """The argument that says whether it updates running statistics: no schema says so."""

    def without_statistics(self, args, kwargs) -> tuple:
        """Arguments without those that batch normalisation in training only writes to."""
        left = [None if name in _STATISTICS else one for name, one in zip(self.names, args)]
        return left, {name: one for name, one in kwargs.items() if name not in _STATISTICS}

    def of(self, name: str, args, kwargs):
        """An argument, by name; None where it was left out."""
        at = self.names.index(name)
        return args[at] if at < len(args) else kwargs.get(name)


class _Stored:
    """A storage."""

    __slots__ = ("graph", "holds", "is_given", "is_parameter", "reference", "version")

    def __init__(self, reference, holds: int, is_given: bool = False) -> None:
        self.reference = reference
        self.holds = holds
        """The number of its contents."""
        self.is_given = is_given
        """Nothing that was looked at has made it."""
        self.is_parameter = False
        self.version = None
        """Of the tensor that it was last seen with; None where a write was seen, which makes a new one afterwards."""
        self.graph = None
        """The number of the autograd graph that its contents came by."""


class Call:
    """One call of an operator that may be known."""

    __slots__ = ("graph", "keeps", "number", "reads", "reads_parameters")

    def __init__(self, number: int, graph: "int | None", reads: bool, reads_parameters: bool, keeps: bool) -> None:
        self.number = number
        """The same for calls that make the same values."""
        self.graph = graph
        """The same for those whose results lead back to the same leaves too; None where no graph is recorded."""
        self.reads = reads
        """It takes a tensor; else it fills memory with constants."""
        self.reads_parameters = reads_parameters
        self.keeps = keeps
        """It updates running statistics beside what it makes."""


class Values:
    """Numbers of all that was seen since it was made."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.known: "dict[tuple, int]" = {}
        self.stored: "dict[int, _Stored]" = {}
        self.operators: "dict[object, _Operator]" = {}
        self.given: "set[tuple]" = set()
        """What was read of storages that nothing here has made: batches, parameters and constants."""

    def call(self, func, args, kwargs) -> "Call | None":
        """Before it runs; None where equal arguments do not make equal results."""
        facts = self._facts(func)
        if not facts.is_pure:
            return None
        keeps = bool(facts.keeps) and self._updates(facts, args, kwargs)
        if facts.drops and facts.of(facts.drops, args, kwargs):
            return None
        graphs: list = []
        self.met_parameter = False
        if keeps:
            args, kwargs = facts.without_statistics(args, kwargs)
        try:
            key = (func, self._key(args, graphs), tuple((name, self._key(one, graphs)) for name, one in kwargs.items()))
        except _UnknownError:
            return None
        number = self._number(key)
        recorded = torch.is_grad_enabled() and any(one is not None for one in graphs)
        graph = self._number(("graph", number, *graphs)) if recorded else None
        return Call(number, graph, bool(graphs), self.met_parameter, keeps)

    def done(self, func, args, kwargs, result, call: "Call | None", is_batch: bool = False) -> None:
        """After it has run. Without a `call`, all that it wrote or made was never there before; what it made of nothing
        (random numbers), or for a batch (`is_batch`), comes from elsewhere."""
        facts = self._facts(func)
        if func.is_view:
            if args and type(args[0]) is torch.nn.Parameter and args[0].layout is torch.strided:
                self._of(args[0]).is_parameter = True
            return
        for at, name in facts.writes:
            written = args[at] if at < len(args) else kwargs.get(name)
            for which, tensor in enumerate(_tensors(written)):
                self._becomes(tensor, call, ("writes", at, which), is_batch)
        if facts.keeps and (call is None or call.keeps):
            for name in _STATISTICS:
                for tensor in _tensors(facts.of(name, args, kwargs)):
                    self._becomes(tensor, None, ())
        if not facts.is_torchs:
            for tensor in _tensors((args, tuple(kwargs.values()))):
                self._becomes(tensor, None, ())
        reads = any(True for _ in _tensors((args, tuple(kwargs.values()))))
        if call is not None or (reads and not is_batch):
            for which, tensor in enumerate(_tensors(result)):
                self._makes(tensor, call, which)

    def holder(self, tensor) -> "int | None":
        """The address by which the storage of a plain tensor is known."""
        plain = type(tensor) in _PLAIN and tensor.layout is torch.strided
        return tensor.untyped_storage()._cdata if plain else None

    def holds(self, tensor) -> int:
        """The number of what a plain tensor's storage holds."""
        return self._of(tensor).holds

    def written(self, func, args, kwargs) -> "list[int]":
        """Addresses of the storages that a call writes to."""
        places = self._facts(func).writes
        every = [one for at, name in places for one in _tensors(args[at] if at < len(args) else kwargs.get(name))]
        return [address for address in map(self.holder, every) if address is not None]

    # -- what calls consist of

    def _facts(self, func) -> _Operator:
        found = self.operators.get(func)
        if found is None:
            found = self.operators[func] = _Operator(func)
        return found

    @staticmethod
    def _updates(facts: _Operator, args, kwargs) -> bool:
        return bool(facts.of(facts.keeps, args, kwargs)) and facts.of("running_mean", args, kwargs) is not None

    def _key(self, value, graphs: list):
        kind = type(value)
        if kind in _PLAIN:
            return self._tensor(value, graphs)
        if kind in _NUMBERS:
            return kind, value
        if kind is float or kind is complex:
            return kind, repr(value)
        if isinstance(value, (list, tuple)):
            return tuple(self._key(one, graphs) for one in value)
        if kind in _NAMED:
            return value
        raise _UnknownError

    def _tensor(self, tensor, graphs: list) -> tuple:
        place = (tensor.dtype, tuple(tensor.shape))
        if tensor.layout is torch.strided:
            stored = self._of(tensor)
            stored.is_parameter = stored.is_parameter or type(tensor) is torch.nn.Parameter
            self.met_parameter = self.met_parameter or stored.is_parameter
            if stored.is_given and not stored.is_parameter:
                self.given.add((stored.holds, tensor.storage_offset(), tensor.shape))
            graphs.append((stored.holds if stored.graph is None else stored.graph) if tensor.requires_grad else None)
            bits = tensor.is_conj(), tensor.is_neg()
            return stored.holds, *place, tensor.stride(), tensor.storage_offset(), *bits
        parts = _parts(tensor)
        if not parts or tensor.requires_grad:
            raise _UnknownError
        coalesced = tensor.layout is torch.sparse_coo and tensor.is_coalesced()
        return tensor.layout, *place, coalesced, *(self._tensor(part, graphs) for part in parts)

    # -- what storages hold

    def _of(self, tensor) -> _Stored:
        storage = tensor.untyped_storage()
        # In inference mode a view counts anew, whatever it is a view of.
        is_new = tensor.is_inference() or (torch.is_inference_mode_enabled() and type(tensor) is torch.Tensor)
        version = None if is_new else tensor._version
        stored = self.stored.get(storage._cdata)
        if stored is None:
            stored = self.stored[storage._cdata] = _Stored(StorageWeakRef(storage), next(self.numbers), True)
        elif version is not None and stored.version not in (None, version):
            stored.holds, stored.graph = next(self.numbers), None
        stored.version = stored.version if version is None else version
        return stored

    def _becomes(self, tensor, call: "Call | None", how: tuple, is_given: bool = False) -> None:
        for part in (tensor,) if tensor.layout is torch.strided else _parts(tensor):
            stored = self._of(part)
            stored.version = None
            stored.is_given = is_given
            stored.holds = next(self.numbers) if call is None else self._number((call.number, *how))
            stored.graph = None if call is None else call.graph

    def _makes(self, tensor, call: "Call | None", which: int) -> None:
        """A storage that was not there before the call is its result; any other one is an argument's."""
        for at, part in enumerate((tensor,) if tensor.layout is torch.strided else _parts(tensor)):
            storage = part.untyped_storage()
            if storage._cdata not in self.stored:
                known = call is not None
                holds = self._number((call.number, "makes", which, at)) if known else next(self.numbers)
                stored = self.stored[storage._cdata] = _Stored(StorageWeakRef(storage), holds)
                stored.graph = call.graph if known else None

    def _number(self, key: tuple) -> int:
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = next(self.numbers)
        return found


def _tensors(value):
    """All plain ones in it."""
    if type(value) in _PLAIN:
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _parts(tensor) -> tuple:
    """The strided tensors of a sparse one; none of any other."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in _COMPRESSED:
        first, second = _COMPRESSED[tensor.layout]
        return getattr(tensor, first)(), getattr(tensor, second)(), tensor.values()
    return ()
