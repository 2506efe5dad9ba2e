"""What steps compute of their samples alone: with nothing that changes and nothing that chance has a part in, so that
every epoch computes it again.

Each operator's result is followed into those that read it. A result is of samples if all that it is made of is: the
batch that a loader gave, rows that were taken out of a tensor which stays as it is (a data set in memory), other such
results, and tensors that stay as they are (a model that is not trained). Nothing is told of what has an autograd graph,
of what an operator makes of several samples together, and of steps that are not alike: with other numbers given to the
same operators, or with Python's or NumPy's generators asked in them. That all is still as it was can be asked later.
"""

import weakref
from typing import NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ..hooks.held_out import tensors
from . import draws

_ROWS = 4
"""A tensor is some rows of a data set where that is so many times larger, at least."""
_TOGETHER = {"mm", "addmm", "mv", "addmv", "_cdist_forward", "_euclidean_dist", "index", "index_select", "gather"}
"""Operators in which each row of one argument meets all of the other."""
_PICKS = {"index", "index_select", "embedding", "gather"}
"""Those that take rows out of their first argument."""
_JOINS = {"cat", "stack"}
"""Those that put rows side by side."""
_ALONG = ("dim", "dims")
"""Arguments that say along which dimensions an operator goes."""
_LEAST = 0.02
"""Of all operators' time: less is not told."""


class _Given:
    """A storage that nobody was seen to make, or a batch."""

    __slots__ = ("changed", "is_batch", "offset", "owner", "rows", "steps", "version")

    def __init__(self, tensor, is_batch: bool) -> None:
        self.owner = weakref.ref(tensor if tensor._base is None else tensor._base)
        self.version = _version(tensor)
        self.is_batch = is_batch
        self.offset = tensor.storage_offset()
        self.steps: "set[int]" = set()
        self.changed = False
        self.rows = 0
        """That it has, where steps take a few of them; else 0."""

    def met(self, tensor, step: int) -> None:
        version = _version(tensor)
        self.changed = self.changed or (version is not None and self.version not in (None, version))
        self.version = self.version if version is None else version
        self.steps.add(step)

    @property
    def stays(self) -> bool:
        """As far as steps have shown."""
        return not self.changed and (self.is_batch or len(self.steps) > 1)

    def is_as_it_was(self) -> bool:
        """Also since."""
        tensor = self.owner()
        return tensor is not None and _version(tensor) in (None, self.version)


class _Content:
    """What a storage holds."""

    __slots__ = ("bytes", "given", "is_made", "is_of_samples", "is_read", "places", "reference")

    def __init__(self, storage, given: frozenset, places: frozenset, is_of_samples: bool, is_made: bool) -> None:
        self.reference = StorageWeakRef(storage)
        """While it is there, no other storage has its address."""
        self.given = given
        """All that it is made of ..."""
        self.places = places
        """... by calls of these operators and places."""
        self.is_of_samples = is_of_samples
        self.is_made = is_made
        self.is_read = False
        """By something that is no such work."""
        self.bytes = storage.nbytes()


class _Read(NamedTuple):
    """An argument of a call."""

    tensor: torch.Tensor
    content: "_Content | None"
    """None of what is no such work."""
    is_of_samples: bool


class OfSamples:
    """Follows such results through the steps of a window."""

    def __init__(self, timeline, values) -> None:
        self.timeline = timeline
        self.values = values
        self.began = self.step = timeline.step
        self.stored: "dict[int, _Content | None]" = {}
        """By address; None of what is no such work."""
        self.others: list = []
        """References that keep the addresses of those."""
        self.batch = 0
        """Samples in the step's batch."""
        self.calls: "list[tuple]" = []
        """Rows of the window, with what each call was given, and what it made."""
        self.constants: "dict[int, dict[tuple, list]]" = {}
        """By step, operator and place: what its calls were given beside tensors."""
        self.drawn: "tuple | None" = None
        self.by_chance = False
        self.sources: "list[_Given]" = []
        """What the work that was told is made of."""

    def given(self, batch) -> None:
        """A loader has given a batch."""
        self.batch, self.step = 0, self.timeline.step
        for one in tensors(batch):
            address = self.values.holder(one)
            if address is not None and one.dim():
                self.batch = self.batch or one.shape[0]
                self._meet(address, one, is_batch=True)
        self.drawn = _drawn()

    def passes_back(self) -> None:
        """A backward pass is under way."""
        if self.drawn is not None:
            self.by_chance = self.by_chance or self.drawn != _drawn()
            self.drawn = None

    def viewed(self, tensor) -> None:
        """A view of it was made: of a parameter itself it is known whether it changes."""
        if type(tensor) is torch.nn.Parameter:
            self._read(tensor)

    def ended(self, func, args, kwargs, result, made, call) -> None:
        """An operator of the step's own computing has run; `call` is None of one that is not pure."""
        if self.step != self.timeline.step:
            self.batch, self.step = 0, self.timeline.step
        name = func._schema.name.partition("::")[2]
        read = [self._read(one) for one in tensors((args, kwargs))]
        picks = self._picks(name, read, result)
        used = read[:1] if picks else read
        of_samples = picks or any(one.is_of_samples for one in used)
        known = call is not None and call.graph is None and all(one.content is not None for one in used)
        if not known or (of_samples and not picks and not self._keeps_rows(func, name, args, kwargs, read, result)):
            self._ends(func, args, kwargs, read, result)
            return
        given = frozenset().union(*(one.content.given for one in used))
        places = frozenset().union(*(one.content.places for one in used))
        is_told = of_samples and made is not None
        if is_told:
            place = func, made.stack
            places |= {place}
            at_place = self.constants.setdefault(self.step - self.began, {}).setdefault(place, [])
            at_place.append(_beside(args, kwargs, read))
        produced = []
        for address, one in self._made(func, args, kwargs, result):
            self.stored[address] = _Content(one.untyped_storage(), given, places, of_samples, True)
            produced.append(self.stored[address])
        if is_told and not picks:  # what is made once for all samples is picked from too
            self.calls.append((made, given, places, produced))

    def _read(self, tensor) -> _Read:
        address = self.values.holder(tensor)
        if address is None:
            return _Read(tensor, None, False)
        if address not in self.stored:
            self._meet(address, tensor, is_batch=False)
        content = self.stored[address]
        if content is None or content.is_made:
            return _Read(tensor, content, content is not None and content.is_of_samples)
        (given,) = content.given
        given.met(tensor, self.step)
        is_of_samples = content.is_of_samples
        size = tensor.numel() * tensor.element_size()
        if not given.is_batch and tensor.storage_offset() != given.offset and content.bytes >= _ROWS * size > 0:
            is_of_samples = True  # other rows than in the step before
            self.batch = self.batch or tensor.shape[0]
            given.rows = content.bytes // (size // tensor.shape[0])
        return _Read(tensor, content, is_of_samples)

    def _picks(self, name: str, read: "list[_Read]", result) -> bool:
        """Whether rows are taken out of a data set in memory."""
        if name not in _PICKS or not read or read[0].content is None or read[0].content.is_made:
            return False
        (given,), first = read[0].content.given, next(tensors(result), None)
        if given.is_batch or first is None or not first.dim() or read[0].tensor.numel() < _ROWS * first.numel():
            return False
        given.rows = read[0].tensor.shape[0]
        self.batch = self.batch or first.shape[0]
        return True

    def _keeps_rows(self, func, name: str, args, kwargs, read: "list[_Read]", result) -> bool:
        """Whether each sample's part of the result is made of its own part of the arguments."""
        mine = [one.tensor for one in read if one.is_of_samples]
        if name in _TOGETHER and mine[0].dim() < 3:
            rows = read[name.startswith("add")].tensor
            if len(mine) > 1 or (mine[0] is not rows and name not in _PICKS):
                return False
        if name == "index" and read[0].is_of_samples and args[1][0] is not None:
            return False
        for made in tensors(result):
            if not self.batch or not made.dim() or made.shape[0] % self.batch:
                return False
            if any(one.dim() < made.dim() - 1 or _is_spread(one, made) for one in mine):
                return False
        return name in _JOINS or not _goes_along_rows(func, args, kwargs, mine[0].dim())

    def _ends(self, func, args, kwargs, read: "list[_Read]", result) -> None:
        """What it made or wrote is no such work."""
        for one in read:
            if one.content is not None:
                one.content.is_read = True
        for address, tensor in self._made(func, args, kwargs, result):
            self.others.append(StorageWeakRef(tensor.untyped_storage()))
            self.stored[address] = None

    def _made(self, func, args, kwargs, result) -> "list[tuple]":
        """Addresses that it made or wrote to, with the tensors there."""
        written = self.values.written(func, args, kwargs)
        some = tensors((result, args, kwargs) if written else result)
        places = [(self.values.holder(one), one) for one in some]
        return [(at, one) for at, one in places if at is not None and (at not in self.stored or at in written)]

    def _meet(self, address: int, tensor, is_batch: bool) -> None:
        given = frozenset((_Given(tensor, is_batch),))
        self.stored[address] = _Content(tensor.untyped_storage(), given, frozenset(), is_batch, False)

    def judged(self, whole: int, judged: int) -> "tuple[list, dict]":
        """Calls that every epoch makes again, as `aside_rows` takes them, and facts about them: of `judged` steps whose
        operators took `whole` nanoseconds."""
        alike = self._alike()
        told = [
            (made, given, produced)
            for made, given, places, produced in self.calls
            if made.step and made.first is None and places <= alike and all(one.stays for one in given)
        ]
        if self.by_chance or not told or sum(made.spent_ns for made, *_ in told) < _LEAST * whole:
            return [], {}
        given = {id(one): one for _, some, _ in told for one in some}.values()
        self.sources = [one for one in given if not one.is_batch]
        kept = {id(one): one.bytes for *_, produced in told for one in produced if one.is_read}
        return [(made, 0) for made, *_ in told], {
            "bytes": sum(kept.values()) // (judged * max(1, self.batch)),
            "batch": self.batch,
            "rows": max((one.rows for one in self.sources), default=0),
            "by_loader": len(self.sources) < len(given),
        }

    def _alike(self) -> "set[tuple]":
        """Operators and places that were given the same beside tensors in each step."""
        steps = [found for step, found in self.constants.items() if step]
        return {key for key in (steps[0] if steps else ()) if all(_are_alike(steps[0], one, key) for one in steps[1:])}

    def is_as_it_was(self) -> bool:
        """Whether what the work is made of beside batches has not changed since."""
        return all(one.is_as_it_was() for one in self.sources)


def _beside(args, kwargs, read: "list[_Read]") -> "tuple[list, list, list]":
    """What an operator is given beside tensors: their shapes, numbers with a point, and all else with the places of the
    samples' tensors in memory."""
    plain = [one for one in (*args, *kwargs.values()) if next(tensors(one), None) is None]
    points = [repr(one) for one in plain if type(one) in (float, complex)]
    places = [one.tensor.storage_offset() for one in read if one.is_of_samples and one.content.is_of_samples]
    return [one.tensor.shape for one in read], points, [repr(plain), places]


def _are_alike(first: dict, second: dict, key: tuple) -> bool:
    """Sizes are other ones where the tensors are."""
    one, other = first[key], second.get(key, ())
    return len(one) == len(other) and all(
        points == other_points and (shapes != other_shapes or rest == other_rest)
        for (shapes, points, rest), (other_shapes, other_points, other_rest) in zip(one, other)
    )


def _is_spread(one, made) -> bool:
    """Whether one row of it goes into all of the result."""
    return one.dim() == made.dim() and one.shape[0] == 1 < made.shape[0]


def _goes_along_rows(func, args, kwargs, dimensions: int) -> bool:
    """Whether an operator sums, sorts or turns along the first dimension."""
    for at, argument in enumerate(func._schema.arguments):
        if argument.name in _ALONG:
            along = args[at] if at < len(args) else kwargs.get(argument.name, argument.default_value)
            return any(one % dimensions == 0 for one in ([along] if isinstance(along, int) else along or ()))
    return False


def _version(tensor) -> "int | None":
    """None where it counts anew, as of views in inference mode."""
    counts_anew = torch.is_inference_mode_enabled() and type(tensor) is torch.Tensor
    return None if tensor.is_inference() or counts_anew else tensor._version


def _drawn() -> tuple:
    """The states of generators that no operator of torch's asks."""
    return draws.of_numpy(), draws.of_python()
