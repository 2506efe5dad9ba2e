"""What is saved: how many bytes were written, and what the first checkpoints of each line hold.

Types and sizes, and how fast memory is copied here: nothing of the job's runs.
"""

import collections
import ctypes
import io
import itertools
import linecache
import mmap
import os
import pathlib
import re
import sys
import time
import zlib

import torch

from .. import timeline as parts
from ..sites import callers, users_modules
from ..windows.tensor_sizes import NUMBERS, array_type
from .held_out import mark

_LOOKED_INTO = 3
"""Checkpoints of each line whose contents are looked at: of two at once, the best and the last one, nothing differs."""
_ALL = 0.999
"""Of a checkpoint: where so much is as it was in the one before, nobody has trained in between."""
_MOST = 5_000
"""Objects looked at in one of them: about 5 ms."""
_COPIED = 4_000_000
"""Bytes of one of them that are copied, to time it: about 2 ms."""
_APART, _PIECE = 1 << 16, 64
"""Bytes from one piece of an array that is looked at to the next, and of a piece: of 130 MB about 1 ms."""
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
    ("numpy", "save"),
    ("numpy", "savez"),
    ("numpy", "savez_compressed"),
    ("torch", "load"),
    ("gzip", "compress"),
    ("zlib", "compress"),
    ("bz2", "compress"),
    ("lzma", "compress"),
}
"""Functions of modules that the job may import after torch: all that safetensors writes goes through the first."""
_TRAINERS = {
    ("lightning.pytorch.trainer.trainer", "Trainer", "save_checkpoint"),
    ("pytorch_lightning.trainer.trainer", "Trainer", "save_checkpoint"),
    ("transformers.trainer", "Trainer", "_save_checkpoint"),
    ("accelerate.accelerator", "Accelerator", "save_state"),
}
"""Methods that write a whole checkpoint: they gather it before `torch.save`, and some write the file after it."""
_HYPERPARAMETERS = "hyper_parameters"
"""In a checkpoint of Lightning's."""
_OF_ANYTHING = ("json", "pickle", "numpy")
"""What a tracker writes with these is its own affair."""
_COMPRESSING = {"savez_compressed": "save.compressed"}
SAVES = ("save", *_COMPRESSING.values())
"""Kinds of calls that write a file."""
_WITH_A_SAVE = ("torch", "gzip", "zlib", "bz2", "lzma")
"""In a step that has saved: a checkpoint is compressed, or read again."""


class Checkpoints:
    """What the wrapper around `torch.save` and its like tells besides the time."""

    def __init__(self, recorder, sites) -> None:
        self.recorder = recorder
        self.sites = sites
        self.seen: "dict[int, int]" = {}
        self.held: "dict[int, dict]" = {}
        """What the latest checkpoint of a line held."""
        self.functions: set = set()
        """Code of the user's functions around the updates."""

    def updates(self, frame) -> None:
        """An optimizer's step, early in the job, is under way in `frame`."""
        self.functions |= {code for code, _ in callers(frame, self.sites.is_library)}

    def saved(self, site: int, args: tuple, kwargs: dict, library: str, took_ns: int, cpu_ns: int) -> int:
        """Bytes written by a call of this library's with these arguments; 0 where that is not known. Call it when it
        has returned, with the time that it took and the CPU time of its thread."""
        words = [*args, *kwargs.values()]
        if library == "numpy":  # the file first
            words = words[1:] + words[:1]
        seen = self.seen[site] = self.seen.get(site, 0) + 1
        if seen <= _LOOKED_INTO and words:
            spent = {"library": library, "us": took_ns // 1000, "cpu_us": cpu_ns // 1000}
            asked_at = self.sites.number(self.sites.asked_in(sys._getframe(1), self.functions))
            told, held = _contents(words[0])
            told.update(self._as_before(held, self.held.get(site, {})))
            self.held[site] = held
            self.recorder.record("saved", site=site, asked_at=asked_at, **spent, **told)
        return next((size for word in words[1:] if (size := _written(word))), 0)

    def _as_before(self, held: dict, before: dict) -> dict:
        """Bytes of what has not changed since the checkpoint before; of the largest part the name, and the line that
        makes it one of the model's."""
        same = [one for place, (now, *one) in held.items() if before.get(place, (None,))[0] == now]
        size = sum(size for size, *_ in same)
        if not size or size > _ALL * sum(size for _, size, *_ in held.values()):
            return {}
        _, outer, name = max(same)
        return {"unchanged_bytes": size, "unchanged": name, "unchanged_at": self._put_in(outer, name)}

    def _put_in(self, outer: str, name: str) -> int:
        """The line of the job's own files that registers a buffer of this name, else the one that gives a dictionary
        such a key; of Lightning's hyperparameters the one that saves them; -1 without one."""
        word = rf"[\"']{re.escape(name.rpartition('.')[2])}[\"']"
        own = [vars(module)["__file__"] for module in users_modules(self.sites.is_library).values()]
        anywhere = rf"register_buffer\(\s*{word}", rf"\[\s*{word}\s*\]\s*=(?!=)|{word}\s*:"
        for puts in (r"\.save_hyperparameters\(",) if outer == _HYPERPARAMETERS else anywhere:
            for file in own:
                text = "".join(linecache.getlines(file))
                found = re.search(puts, text)
                if found is not None:
                    return self.sites.number((file, text.count("\n", 0, found.start()) + 1, "", None))
        return -1


def watch_later(changes, calls) -> None:
    """Put the wrappers around what the job has imported meanwhile."""
    for name, owner, method in list(_TRAINERS):
        kind = getattr(sys.modules.get(name), owner, None)
        if kind is not None:
            _TRAINERS.discard((name, owner, method))
            changes.put(kind, method, calls.in_whole(vars(kind)[method]), "calls")
    for name, function in list(_LATER):
        module = sys.modules.get(name)
        original = vars(module).get(function) if module is not None else None
        if original is None:
            continue
        _LATER.discard((name, function))
        if name in _WITH_A_SAVE:
            save = calls.wrap("save.with", original, parts.CHECKPOINT, calls.began_after_save)
        else:
            began = calls.began_in_loop if name in _OF_ANYTHING else calls.began
            save = calls.wrap(_COMPRESSING.get(function, "save"), original, parts.CHECKPOINT, began)
        # Under both its names too, where it is defined in another module.
        for owner in (module, sys.modules.get(original.__module__)):
            if owner is not None and vars(owner).get(function) is original:
                changes.put(owner, function, save, "calls")


def _written(target) -> int:
    if type(target) is getattr(sys.modules.get("ray.train"), "Checkpoint", None):
        target = target.path  # of what is copied: where it goes may be a bucket
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


def _contents(saved) -> "tuple[dict, dict]":
    """Bytes of its tensors and arrays and of the storages that they are views of, and classes of other things; and of
    each storage, by device and address, what tells whether it has changed, its bytes, and the first and the last name
    that lead to it."""
    shown = optimizer = 0
    storages: "dict[tuple[str, int], int]" = {}
    held: "dict[tuple[str, int], tuple]" = {}
    others: "dict[str, None]" = {}
    waiting, met = [(saved, False, "", "")], 0
    while waiting and met < _MOST:
        one, in_optimizer, outer, name = waiting.pop()
        kind = type(one)
        met += 1
        if kind in _MAPPINGS:
            in_optimizer = in_optimizer or dict.keys(one) >= _OPTIMIZER
            waiting += [(value, in_optimizer, outer or str(key), str(key)) for key, value in dict.items(one)]
        elif kind is list or kind is tuple:
            waiting += [(value, in_optimizer, outer, name) for value in one]
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            size = one.numel() * one.element_size()
            shown += size
            optimizer += size * in_optimizer
            storage = one.untyped_storage()
            place = storage.device.type, storage.data_ptr()
            storages[place] = storage.nbytes()
            held[place] = mark(one, storage), storage.nbytes(), outer, name
        elif kind is array_type() and one.dtype.kind in NUMBERS and one.flags.c_contiguous:
            shown += one.nbytes
            place = "cpu", one.ctypes.data
            storages[place] = one.nbytes
            held[place] = _array_mark(one), one.nbytes, outer, name
        elif kind not in _PLAIN:
            others[kind.__name__] = None
    on_host = {address: size for (device, address), size in storages.items() if device == "cpu"}
    total = sum(storages.values())
    told = {
        "tensor_bytes": shown,
        "optimizer_bytes": optimizer,
        "storage_bytes": total,
        "device_bytes": total - sum(on_host.values()),
        "others": list(others)[:5],
        **_copied(on_host),
    }
    return told, held


def _array_mark(array) -> int:
    """A checksum of pieces from all over an array: nothing else tells that somebody has written to it."""
    whole = array.reshape(-1).view("u1")
    rows = len(whole) // _APART
    pieces = whole[: rows * _APART].reshape(rows, _APART)[:, :_PIECE].tobytes() if rows else b""
    return zlib.crc32(whole[rows * _APART :].tobytes(), zlib.crc32(pieces))


def _copied(storages: "dict[int, int]") -> dict:
    """The time that a copy of the largest of them takes, or of its beginning, into memory that is new: what staging a
    checkpoint does. Not by torch, which tells modes of every copy."""
    address, size = max(storages.items(), key=lambda one: one[1], default=(0, 0))
    size = min(size, _COPIED)
    if not address or not size:
        return {}
    with mmap.mmap(-1, size) as memory:
        target = ctypes.c_char.from_buffer(memory)
        began = time.perf_counter_ns()
        ctypes.memmove(ctypes.addressof(target), address, size)
        took_ns = time.perf_counter_ns() - began
        del target
    return {"copied_bytes": size, "copied_us": took_ns // 1000}
