"""What a value holds, as a number that equal values share: of Python's own types, arrays and tensors on the CPU.

None of the job's code runs: types are compared by identity, and what a subclass of a container holds is asked of
Python's own. Nothing of the values is kept, only the number and how much they say.
"""

import ctypes
import datetime
import hashlib
import io
import pathlib
import sys

import torch

LARGEST = 1 << 24
"""Of one array, tensor or text, in bytes: 16 MB take about 8 ms."""
_MOST_ITEMS = 20_000
"""Of all containers in one value, about 1 us each."""
_DEEPEST = 12
_ATTRIBUTES = 200
"""Of an object that is known by its identity, what is looked at."""
_PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Of another class, what a tensor stands for is not known."""
_NAMED = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_PATHS = (pathlib.PosixPath, pathlib.WindowsPath, pathlib.PurePosixPath, pathlib.PureWindowsPath)
_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
FILES = (io.TextIOWrapper, io.BufferedReader)
"""What `open` gives to read from."""
_TEXT_PER = 16
"""Characters of a text that say as much as one item: a path of 40 says where something lies, and no more."""
_LARGE = 1 << 16
"""A whole number from here on is no count of a few things."""
_OWN = object.__basicsize__ + 2 * ctypes.sizeof(ctypes.c_void_p)
"""Bytes of an object that has nothing but a dictionary and weak references: what it holds is in its attributes."""


class NotComparableError(Exception):
    """Something in it is of a type whose values are not known to be equal."""


class Content:
    """Takes in one value after another."""

    def __init__(self, of_arguments: bool = False, largest: int = LARGEST, everywhere: bool = False) -> None:
        """`of_arguments`: what is larger than the `largest`, or of another type, counts by its identity and what its
        attributes are. `everywhere`: equal values share their number in all processes, which takes twice as long."""
        self.of_arguments = of_arguments
        self.of_bytes = _blake if everywhere else hash
        """Python's own has a seed of its own in each process."""
        self.largest = largest
        self.hash = hashlib.blake2b(digest_size=16)
        self.items = 0
        self.telling = 0
        """What would hardly be the same twice by chance: items of containers, numbers with many digits, arrays."""
        self.bytes = 0
        """Of arrays, tensors, texts and numbers."""
        self.objects: list = []
        """Those that count by their identity."""

    @property
    def number(self) -> bytes:
        """The same for equal values."""
        return self.hash.digest()

    def add(self, value, depth: int = 0) -> None:
        """Raises `NotComparableError`."""
        self.items += 1
        kind = type(value)
        if self.items > _MOST_ITEMS or depth > _DEEPEST:
            raise NotComparableError
        if value is None or kind is bool or value is Ellipsis:
            self._constant(kind, value)
        elif kind is int:
            self._scalar("int", str(value), abs(value) >= _LARGE)
        elif kind is float or kind is complex:
            self._scalar(kind.__name__, repr(value), kind is complex or not value.is_integer())
        elif issubclass(kind, str):
            self._text("str", str.encode(value, "utf-8", "surrogatepass"))
        elif kind is bytes or kind is bytearray:
            self._text("bytes", bytes(value))
        elif kind in _PLAIN:
            self._tensor(value)
        elif self.of_arguments and issubclass(kind, (list, dict)) and _length(value, kind) > _MOST_ITEMS:
            self._identity(value)
        elif issubclass(kind, (tuple, list)):
            self._start(kind, (tuple if issubclass(kind, tuple) else list).__len__(value))
            for one in (tuple if issubclass(kind, tuple) else list).__iter__(value):
                self.add(one, depth + 1)
        elif issubclass(kind, dict):
            self._start(kind, dict.__len__(value))
            for name, one in list(dict.items(value)):
                self.add(name, depth + 1)
                self.add(one, depth + 1)
        elif kind is set or kind is frozenset:
            self._set(value, kind, depth)
        elif kind in _NAMED or kind in _PATHS or kind in _TIMES or kind is range:
            self._constant(kind, repr(value))
        elif self.of_arguments and kind in FILES:
            self._file(value, kind)
        elif not self._of_numpy(value, kind):
            self._object(value, kind, depth)

    # -- what there is ------------------------------------------------------------------------------------

    def _update(self, *words) -> None:
        self.hash.update(repr(words).encode("utf-8", "surrogatepass"))

    def _constant(self, kind, value) -> None:
        self._update(kind.__name__, str(value))

    def _scalar(self, kind: str, text: str, telling: bool) -> None:
        self._update(kind, text)
        self.bytes += 8
        self.telling += 8 if telling else 0

    def _text(self, kind: str, raw: bytes) -> None:
        if len(raw) > self.largest:
            raise NotComparableError
        self._update(kind, len(raw), self.of_bytes(raw))
        self.bytes += len(raw)
        self.telling += len(raw) // _TEXT_PER

    def _start(self, kind, length: int) -> None:
        self._update(kind.__name__, length)
        self.telling += length

    def _set(self, value, kind, depth: int) -> None:
        self._start(kind, len(value))
        numbers = []
        for one in list(value):
            inner = Content(self.of_arguments, self.largest, self.of_bytes is _blake)
            inner.items = self.items
            inner.add(one, depth + 1)
            self.items = inner.items
            self.bytes += inner.bytes
            self.objects += inner.objects
            numbers.append(inner.number)
        self._update(*sorted(numbers))

    def _raw(self, kind: str, place: tuple, raw: bytes, size: int) -> None:
        self._update(kind, *place, self.of_bytes(raw))
        self.bytes += len(raw)
        view = memoryview(raw)
        if len(raw) > size and view[:-size] != view[size:]:
            self.telling += len(raw)

    def _tensor(self, tensor) -> None:
        is_plain = tensor.layout is torch.strided and tensor.device.type == "cpu"
        size = tensor.numel() * tensor.element_size() if is_plain else 0
        if not is_plain or size > self.largest or tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
            self._identity(tensor)
            return
        raw = ctypes.string_at(tensor.data_ptr(), size) if tensor.is_contiguous() and size else b""
        if size and not raw:
            raw = tensor.numpy().tobytes()
        self._raw("tensor", (str(tensor.dtype), tuple(tensor.shape)), raw, tensor.element_size())

    def _file(self, value, kind) -> None:
        """Which one, and where reading goes on: of a text that of the bytes that it is decoded from."""
        if value.closed or not value.readable():
            self._identity(value)
            return
        read = value.buffer if kind is io.TextIOWrapper else value
        if type(read) is not io.BufferedReader:
            raise NotComparableError
        self._update(kind.__name__, repr(value.name), read.tell())

    def _of_numpy(self, value, kind) -> bool:
        """Whether it is an array, a number or a type of NumPy's."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not hasattr(numpy, "ndarray"):
            return False
        if kind is numpy.ndarray or kind is numpy.memmap:
            if value.nbytes > self.largest or value.dtype.hasobject:
                self._identity(value)
            else:
                self._raw("array", (value.dtype.str, value.shape), value.tobytes(), value.itemsize)
        elif issubclass(kind, numpy.generic) and kind.__module__ == "numpy":
            telling = issubclass(kind, numpy.floating) and not float(value).is_integer()
            self._scalar(kind.__name__, value.tobytes().hex(), telling)
        elif issubclass(kind, numpy.dtype):
            self._constant(numpy.dtype, value.str)
        else:
            return False
        return True

    def _object(self, value, kind, depth: int) -> None:
        if self.of_arguments and (picture := unread_picture(value)):
            self._constant(kind, picture)
            return
        if self.of_arguments:
            self._identity(value)
            return
        # Of one whose class is written in Python, all that it holds is in its attributes.
        above = type.__dict__["__mro__"].__get__(kind)
        slots = any("__slots__" in vars(one) and vars(one)["__slots__"] for one in above)
        kept = None if slots or kind.__basicsize__ > _OWN else attributes(value)
        if kept is None or kind.__dictoffset__ == 0:
            raise NotComparableError
        self._start(kind, len(kept))
        for name, one in list(kept.items()):
            self.add(name, depth + 1)
            self.add(one, depth + 1)

    def _identity(self, value) -> None:
        if not self.of_arguments:
            raise NotComparableError
        self._update(type(value).__name__, id(value), *_fingerprint(value))
        self.objects.append(value)


def _blake(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def fingerprint(objects: list) -> int:
    """Of objects that count by their identity: another one where an attribute of theirs was set since."""
    return hash(repr([_fingerprint(one) for one in objects]))


def attributes(value) -> "dict | None":
    """What an object keeps by name; None of a class, and where it keeps nothing so, or not as a plain dictionary."""
    if issubclass(type(value), type):
        return None
    try:
        kept = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return kept if type(kept) is dict else None


def versions(module: torch.nn.Module) -> "list[int]":
    """How often each parameter of a module has been changed: one that has learned is another one, whatever it
    returns."""
    found: "list[int]" = []
    waiting = [attributes(module)]
    while waiting and len(found) < _ATTRIBUTES:
        kept = waiting.pop() or {}
        found += [one._version for one in _held(kept, "_parameters") if one is not None and not one.is_inference()]
        waiting += [attributes(one) for one in _held(kept, "_modules")]
    return found


def _held(kept: dict, name: str) -> list:
    held = kept.get(name)
    return list(dict.values(held)) if isinstance(held, dict) else []


def unread_picture(value) -> str:
    """The file of an image of PIL's that was opened, and is decoded when its pixels are asked for; "" for all else."""
    kept = attributes(value) if type(value).__module__.partition(".")[0] == "PIL" else None
    name = kept.get("filename") if kept is not None and kept.get("tile") else ""
    return name if type(name) is str else ""


def _length(value, kind) -> int:
    return (dict if issubclass(kind, dict) else list).__len__(value)


def _fingerprint(value) -> list:
    """Names of its attributes, with what plain numbers and texts are and which objects the others are."""
    kept = attributes(value)
    if kept is None:
        return []
    return [
        (name, one if type(one) in (int, float, str, bool) else id(one))
        for name, one in list(kept.items())[:_ATTRIBUTES]
        if type(name) is str
    ]
