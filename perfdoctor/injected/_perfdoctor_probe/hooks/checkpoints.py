"""What is saved: how many bytes were written, and what the first checkpoints of each line hold.

Types and sizes only: nothing of the job's runs, no byte is read.
"""

import collections
import io
import itertools
import os
import pathlib
import sys

import torch

from .. import timeline as parts

_LOOKED_INTO = 2
"""Checkpoints of each line whose contents are looked at."""
_MOST = 5_000
"""Objects looked at in one of them: about 5 ms."""
_FILES_OF_ONE = 1_000
"""Of a distributed checkpoint: about 2 ms."""
_FILES = (io.BytesIO, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
_PLAIN = (str, bytes, int, float, bool, type(None))
_OPTIMIZER = frozenset(("state", "param_groups"))
"""Keys of an optimizer's `state_dict`."""
_LATER = {
    ("safetensors.torch", "serialize_file"),
    ("torch.distributed.checkpoint", "save"),
    ("torch.distributed.checkpoint", "async_save"),
    ("json", "dump"),
    ("pickle", "dump"),
}
"""Functions of modules that the job may import after torch: all that safetensors writes goes through the first."""


_OF_ANYTHING = ("json", "pickle")
"""What a tracker writes with these is its own affair."""


class Checkpoints:
    """What the wrapper around `torch.save` and its like tells besides the time."""

    def __init__(self, recorder) -> None:
        self.recorder = recorder
        self.seen: "dict[int, int]" = {}

    def saved(self, site: int, args: tuple, kwargs: dict) -> int:
        """Bytes written by a call with these arguments; 0 where that is not known. Call it when it has returned."""
        words = [*args, *kwargs.values()]
        seen = self.seen[site] = self.seen.get(site, 0) + 1
        if seen <= _LOOKED_INTO and words:
            self.recorder.record("saved", site=site, **_contents(words[0]))
        return next((size for word in words[1:] if (size := _written(word))), 0)


def watch_later(changes, wrap) -> None:
    """Put the wrapper around what the job has imported meanwhile."""
    for name, function in list(_LATER):
        module = sys.modules.get(name)
        original = vars(module).get(function) if module is not None else None
        if original is None:
            continue
        _LATER.discard((name, function))
        save = wrap("save", original, parts.CHECKPOINT, in_loop=name in _OF_ANYTHING)
        # Under both its names too, where it is defined in another module.
        for owner in (module, sys.modules.get(original.__module__)):
            if owner is not None and vars(owner).get(function) is original:
                changes.put(owner, function, save, "calls")


def _written(target) -> int:
    if type(target) is str or isinstance(target, pathlib.PurePath):
        if not os.path.exists(target):  # it is written in the background
            return 0
        if os.path.isdir(target):  # a distributed checkpoint, of all ranks
            with os.scandir(target) as entries:
                return sum(entry.stat().st_size for entry in itertools.islice(entries, _FILES_OF_ONE))
        return os.stat(target).st_size
    if type(target) is io.TextIOWrapper:
        target = target.buffer  # what the text has not passed on to it yet is missing
    return target.tell() if type(target) in _FILES and not target.closed else 0


def _contents(saved) -> dict:
    """Bytes of its tensors and of the storages that they are views of, and classes of what is no tensor."""
    shown = optimizer = 0
    storages: "dict[int, int]" = {}
    others: "dict[str, None]" = {}
    waiting, met = [(saved, False)], 0
    while waiting and met < _MOST:
        one, in_optimizer = waiting.pop()
        kind = type(one)
        met += 1
        if kind in _MAPPINGS:
            in_optimizer = in_optimizer or dict.keys(one) >= _OPTIMIZER
            waiting += [(value, in_optimizer) for value in dict.values(one)]
        elif kind is list or kind is tuple:
            waiting += [(value, in_optimizer) for value in one]
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            size = one.numel() * one.element_size()
            shown += size
            optimizer += size * in_optimizer
            storage = one.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
        elif kind not in _PLAIN:
            others[kind.__name__] = None
    return {
        "tensor_bytes": shown,
        "optimizer_bytes": optimizer,
        "storage_bytes": sum(storages.values()),
        "others": list(others)[:5],
    }
