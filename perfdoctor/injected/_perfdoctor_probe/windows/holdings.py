"""What the job's names hold: containers and tensors within reach of its modules and of the frames under way.

None of the job's code runs: no property, no `__len__`, no `__eq__`. Only Python's own containers are looked into, and
of objects what Python itself keeps of them: attributes and slots.
"""

import collections
import dis
import types

import torch

from ..sites import users_modules
from . import growing_hooks, nesting
from .tensor_sizes import array_type

_OPTIMIZED = 1
"""Of a code object: its variables are in the frame, and `f_locals` is a copy of them."""
_LOOKED_INTO = 256
"""Longer containers hold data: they are counted, and not looked into."""
_MOST = 10_000
"""Objects met in one walk, the nearest to a name first: about 45 ms."""
_ASKS_FOR_LOCALS = frozenset(("locals", "vars", "dir", "eval", "exec"))
"""Who calls one of these in a function may keep the very dictionary that reading the function's frame would change."""
_ASKING: "dict[int, tuple]" = {}
"""By `id()` of a code object, which is kept so that its number stays its own: whether it calls one of them."""
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, tuple, collections.deque)
_OF_MODULES = ("._buffers", "._parameters", "._modules")
"""Where a module keeps what its code calls `self.queue`."""
_LENGTHS = {id(kind): kind.__len__ for kind in (*_MAPPINGS, *_SEQUENCES, set) if kind is not tuple}


def variables(frame, names: "set[str]") -> dict:
    """Of a frame, those with these names, global ones too; none of a function that asks for all of its own."""
    code = frame.f_code
    if code.co_flags & _OPTIMIZED and asks_for_locals(code):
        return {}
    found = {name: frame.f_globals[name] for name in names if name in frame.f_globals}
    if code.co_flags & _OPTIMIZED:
        own = frame.f_locals
        found.update((name, own[name]) for name in names if name in own)
        if type(own) is dict:
            own.clear()  # a copy that stays with the frame, and would keep alive what it has
    return found


def asks_for_locals(code) -> bool:
    """By the function's name itself: `model.eval()` asks for nothing."""
    if not _ASKS_FOR_LOCALS.intersection(code.co_names):
        return False
    known = _ASKING.get(id(code))
    if known is None:
        words = [one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
        known = _ASKING[id(code)] = code, not _ASKS_FOR_LOCALS.isdisjoint(words)
    return known[1]


class Held:
    """An object, how a name leads to it, and the code where the name is."""

    __slots__ = ("above", "files", "layers", "length", "of_tensor", "one", "path", "word")

    def __init__(self, one, path: str, word: str, files: tuple, length: int = 0, of_tensor: bool = False) -> None:
        self.one = one
        self.path = path
        """`log["loss"]`, `trainer.bank.items`."""
        self.word = word
        """Its last name: `log`, or `.items` where that is an attribute."""
        self.files = files
        """Files whose code can name it so, the likeliest first."""
        self.length = length
        self.of_tensor = of_tensor
        """Whether a tensor keeps it, among its hooks."""
        self.above: "Held | None" = None
        """What led to it; None for what a name is given to."""
        self.layers = 0
        """Of its kind around it, once it is met; see `nesting`."""


class Holdings:
    """A walk from the user's names."""

    def __init__(self, sites) -> None:
        self.is_library = sites.is_library
        self.containers: "dict[int, Held]" = {}
        self.tensors: "dict[int, Held]" = {}
        self.arrays: "dict[int, Held]" = {}
        self.array = array_type()
        self.nested: "dict[int, Held]" = {}
        """By the `id()` of what makes layers alike, the innermost one of several."""
        self.met: "dict[int, object]" = {}
        self.kinds: "dict[int, tuple]" = {}
        self.modules = users_modules(sites.is_library)

    def walk(self, frame, roots=()) -> "Holdings":
        """From `roots`, objects by name, from the frames that lead to `frame`, then from the user's modules."""
        reached = [*(Held(one, name, name, ()) for name, one in roots), *self._locals(frame), *self._globals()]
        while reached and len(self.met) < _MOST:
            further: "list[Held]" = []
            for held in reached:
                if id(held.one) not in self.met and len(self.met) < _MOST:
                    self.met[id(held.one)] = held.one
                    self._count_layers(held)
                    children = self._children(held)
                    for child in children:
                        child.above = held
                    further += children
            reached = further
        return self

    def _count_layers(self, held: Held) -> None:
        held.layers = nesting.layers(held)
        if held.layers > 1:
            kind = id(nesting.of(held.one))
            if kind not in self.nested or held.layers > self.nested[kind].layers:
                self.nested[kind] = held

    # -- where names are ----------------------------------------------------------------------------------

    def _globals(self) -> "list[Held]":
        found = []
        for module in self.modules.values():
            file = vars(module)["__file__"]
            found += [Held(one, name, name, (file,)) for name, one in _named(vars(module))]
        return found

    def _locals(self, frame) -> "list[Held]":
        found = []
        while frame is not None:
            code = frame.f_code
            own = code.co_flags & _OPTIMIZED and not self.is_library(code.co_filename)
            if own and not asks_for_locals(code):
                names = frame.f_locals
                found += [Held(one, name, name, (code.co_filename,)) for name, one in _named(names)]
                if type(names) is dict:
                    names.clear()  # a copy that stays with the frame, and would keep alive what it has
            frame = frame.f_back
        return found

    # -- what they lead to --------------------------------------------------------------------------------

    def _children(self, held: Held) -> "list[Held]":
        one, kind = held.one, type(held.one)
        length = _LENGTHS.get(id(kind))
        if length is not None:
            held.length = length(one)
            self.containers[id(one)] = held
        if kind is tuple or length is not None:
            return self._items(held, kind) if len(one) <= _LOOKED_INTO else []
        if kind is types.FunctionType:
            cells = zip(one.__code__.co_freevars, one.__closure__ or ())
            library = self.is_library(one.__code__.co_filename)
            return [] if library else [Held(cell, name, name, held.files) for name, cell in _filled(cells)]
        if kind is types.MethodType:
            return [Held(one.__self__, held.path, held.word, held.files)]
        if kind is type:
            own = one.__module__ in self.modules
            return [self._attribute(held, name, value) for name, value in _named(one.__dict__)] if own else []
        if kind is self.array:
            self.arrays[id(one)] = held
            return []
        is_tensor, attributes, slots = self._shape(kind)
        if is_tensor:
            self.tensors[id(one)] = held
            kept = growing_hooks.of_tensor(one)
            return [Held(hooks, f"{held.path}.{name}", f".{name}", held.files, 0, True) for name, hooks in kept]
        found = _named(attributes(one)) if attributes is not None else []
        return [self._attribute(held, name, value) for name, value in (*found, *_filled_slots(one, slots))]

    def _items(self, held: Held, kind) -> "list[Held]":
        if any(kind is mapping for mapping in _MAPPINGS):
            items = list(dict.items(held.one))
            words = [(f'["{key}"]' if type(key) is str else "[...]", value) for key, value in items]
            if held.word in _OF_MODULES:
                return [Held(value, held.path + f'["{key}"]', f".{key}", held.files) for key, value in items]
        elif kind is set:
            return []
        else:
            words = [("[...]", value) for value in list(held.one)]
        return [Held(value, held.path + word, held.word, held.files) for word, value in words]

    def _attribute(self, held: Held, name: str, one) -> Held:
        module = self.modules.get(getattr(type(held.one), "__module__", ""))
        files = held.files if module is None else (vars(module)["__file__"], *held.files)
        return Held(one, f"{held.path}.{name}", f".{name}", tuple(dict.fromkeys(files)))

    def _shape(self, kind) -> tuple:
        """Whether a class is of tensors, and how to come at what its instances keep."""
        known = self.kinds.get(id(kind))
        if known is None:
            above = type.__dict__["__mro__"].__get__(kind)
            is_tensor = any(one is torch.Tensor for one in above)
            found: list = [is_tensor, None, []]
            for one in above if not is_tensor else ():
                for name, value in list(type.__dict__["__dict__"].__get__(one).items()):
                    if type(value) is types.GetSetDescriptorType and name == "__dict__":
                        found[1] = found[1] or value.__get__
                    elif type(value) is types.MemberDescriptorType and not name.startswith("__"):
                        found[2].append((name, value.__get__))
            self.met[id(kind)] = kind  # so that its number stays its own
            known = self.kinds[id(kind)] = tuple(found)
        return known


def _named(names) -> list:
    return [
        (name, one)
        for name, one in list(names.items())
        if type(name) is str and not name.startswith("__") and type(one) is not types.ModuleType
    ]


def _filled(cells) -> list:
    found = []
    for name, cell in cells:
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # nothing in it yet
            continue
    return found


def _filled_slots(one, slots) -> list:
    found = []
    for name, read in slots:
        try:
            found.append((name, read(one)))
        except AttributeError:  # nothing in it
            continue
    return found
