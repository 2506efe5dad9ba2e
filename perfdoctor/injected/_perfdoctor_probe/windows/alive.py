"""Storages of tensors that are alive, from moment to moment: what the memory of each device consists of at its peak."""

import functools
import os
import weakref

import torch

from .. import procfs

_NEWS = 1.01
"""The process's memory is read again once tensors need this much more than at the last reading: it costs 10 us."""
_PAGE = os.sysconf("SC_PAGESIZE")


class Storage:
    """One, while it is alive and after."""

    __slots__ = ("device", "layer", "part", "reference", "shared", "site", "size", "what")

    def __init__(self, size: int, what: str, device: str, shared: bool) -> None:
        self.size = size
        self.what = what
        self.device = device
        self.shared = shared
        """In memory that other processes may have too."""
        self.site = -1
        self.part = ""
        self.layer = None
        self.reference = None


class Alive:
    """What comes and goes, in order. A storage is known by torch's address of it while it lives."""

    def __init__(self) -> None:
        self.storages: "dict[int, Storage]" = {}
        self.events: "list[tuple[Storage, int]]" = []
        """A storage, and the bytes that came or went with it."""
        self.level: "dict[str, int]" = {}
        self.read_at: "dict[str, int]" = {}
        self.readings: "dict[str, tuple[int, int, int]]" = {}
        """Of each device, where tensors needed most: their bytes, and what `_whole` says."""

    def add(self, tensor, what: str) -> "Storage | None":
        """A storage that was not known before; None for any other."""
        if not _has_storage(tensor):
            return None
        storage = tensor.untyped_storage()
        address = storage._cdata
        known = self.storages.get(address)
        size = storage.nbytes()
        if known is not None:
            if known.size != size:  # resized in place
                self._change(known, size - known.size)
                known.size = size
            return None
        found = Storage(size, what, str(storage.device), storage.device.type == "cpu" and storage.is_shared())
        found.reference = weakref.ref(storage, functools.partial(self._gone, address, found))
        self.storages[address] = found
        self._change(found, size)
        return found

    def known(self, tensor) -> "Storage | None":
        """The storage of a tensor."""
        return self.storages.get(tensor.untyped_storage()._cdata) if _has_storage(tensor) else None

    def _gone(self, address: int, storage: Storage, _reference) -> None:
        if self.storages.get(address) is storage:
            del self.storages[address]
        self._change(storage, -storage.size)

    def _change(self, storage: Storage, size: int) -> None:
        self.events.append((storage, size))
        device = storage.device
        level = self.level[device] = self.level.get(device, 0) + size
        if level > _NEWS * self.read_at.get(device, 0):
            self.read_at[device] = level
            self.readings[device] = (level, *_whole(device))

    def begin(self) -> None:
        """The step begins: the peak is looked for from here on."""
        self.read_at.clear()
        for device, level in self.level.items():
            self.read_at[device] = level
            self.readings[device] = (level, *_whole(device))
        self.began = len(self.events)

    def end(self) -> None:
        """Look at no storage any more."""
        for storage in self.storages.values():
            storage.reference = None
        self.storages.clear()

    def peak(self, device: str) -> "tuple[dict[int, tuple[Storage, int]], Storage | None]":
        """What was alive when the tensors of a device needed most, with its bytes then; and what came last."""
        alive: "dict[int, int]" = {}
        level = most = number = 0
        for at, (storage, size) in enumerate(self.events):
            if storage.device == device:
                level += size
                if at >= self.began and level > most:
                    most, number = level, at + 1
                elif at < self.began:
                    most, number = level, self.began
        by_id = {}
        for storage, size in self.events[:number]:
            if storage.device == device:
                alive[id(storage)] = alive.get(id(storage), 0) + size
                by_id[id(storage)] = storage
        last = self.events[number - 1][0] if number > self.began else None
        return {key: (by_id[key], size) for key, size in alive.items() if size}, last


def _has_storage(tensor) -> bool:
    """Sparse and wrapped tensors have none of their own."""
    try:
        return tensor.device.type != "meta" and tensor.untyped_storage()._cdata != 0
    except (NotImplementedError, RuntimeError):
        return False


def _whole(device: str) -> "tuple[int, int]":
    """Bytes of a device's memory that the process has, and of them what no tensor has: files and shared memory of the
    host's; 0 and 0 where nobody says."""
    if device == "cpu":
        fields = procfs.text("/proc/self/statm").split()
        return (int(fields[1]) * _PAGE, int(fields[2]) * _PAGE) if len(fields) > 2 else (0, 0)
    if device.startswith("cuda"):
        return torch.cuda.memory_reserved(device), 0
    return 0, 0
