"""Whether random numbers are drawn: the states of the process's own generators, and of those that objects keep."""

import ctypes
import random
import sys

import torch

from .content import attributes

_MT19937_BYTES = 625 * 4
"""Its state: 624 words and a place among them."""
_MOST = 2_000
"""Objects that are looked into for generators."""


def state() -> tuple:
    """Of torch's generator on the CPU and NumPy's old ones: another one after a draw. About 5 us."""
    return _of_torch(torch.default_generator), of_numpy()


def of_numpy() -> int:
    """The same of NumPy's own generator, where the job has imported it."""
    module = sys.modules.get("numpy.random.mtrand") or sys.modules.get("numpy.random")
    ours = getattr(module, "_rand", None)
    if ours is None:
        return 0
    bits = ours._bit_generator
    if type(bits).__name__ != "MT19937":
        return hash(repr(bits.state))
    # Its `state` is made number by number: 60 us.
    return hash(ctypes.string_at(bits.ctypes.state_address, _MT19937_BYTES))


def state_of(generators: list) -> list:
    """The same of generators of the job's own."""
    return [_state(one) for one in generators]


def of_python() -> int:
    """The same of Python's `random`, in 20 us: whoever sees calls of built-in functions need not ask."""
    return hash(random.getstate())


def is_generator(value) -> bool:
    """Whether it is a generator of random numbers, of torch's, NumPy's or Python's."""
    kind = type(value)
    return kind is torch.Generator or kind in _numpys() or issubclass(kind, random.Random)


def draws(function) -> bool:
    """Whether this built-in function is a method of a generator of Python's."""
    return issubclass(type(getattr(function, "__self__", None)), random.Random)


def kept_by(one, deepest: int) -> list:
    """Generators within reach of an object: itself, in its attributes, in lists and dictionaries there, and in theirs,
    so many steps away at most."""
    found, met, reached = [], set(), [one]
    for _ in range(deepest + 1):
        further: list = []
        for value in reached:
            if id(value) in met or len(met) > _MOST:
                continue
            met.add(id(value))
            if is_generator(value):
                found.append(value)
            elif type(value) is dict:
                further += list(value.values())[:_MOST]
            elif type(value) in (list, tuple):
                further += list(value)[:_MOST]
            else:
                kept = attributes(value)
                further += list(kept.values()) if kept is not None else []
        reached = further
    return found


def _numpys() -> tuple:
    numpy = sys.modules.get("numpy.random")
    kinds = (getattr(numpy, name, None) for name in ("Generator", "RandomState"))
    return tuple(kind for kind in kinds if kind is not None)


def _state(generator) -> int:
    if type(generator) is torch.Generator:
        return _of_torch(generator)
    if issubclass(type(generator), random.Random):
        return hash(random.Random.getstate(generator))
    numpys = getattr(generator, "bit_generator", None) or generator._bit_generator
    return hash(repr(numpys.state))


def _of_torch(generator) -> int:
    if generator.device.type != "cpu":
        return 0
    with torch._C.DisableTorchFunction():
        now = generator.get_state()
        return hash(ctypes.string_at(now.data_ptr(), now.numel()))
