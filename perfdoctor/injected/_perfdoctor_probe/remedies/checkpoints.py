"""Checkpoints that are written while the loop trains on."""

import argparse
import builtins
import collections
import copy
import functools
import io
import os
import stat
import subprocess
import sys
import threading

import torch
import torch.distributed as distributed

from .base import Remedy, UnsuitableError

_NAMING = (
    *((owner, "open") for owner in (builtins, io, os)),
    *((os, name) for name in ("stat", "lstat", "link", "remove", "unlink", "rename", "replace", "truncate")),
    *((os, name) for name in ("listdir", "scandir", "rmdir")),
)
"""Through what Python programs get at a file whose name they know: `pathlib` (from 3.11 on), `shutil`, `glob`,
`os.path` and `torch.load` end in these."""
_LEAVING = (
    *((os, name) for name in ("fork", "system", "posix_spawn", "execv", "execve", "_exit")),
    (subprocess.Popen, "__init__"),
)
"""What starts other processes, which may look for the file, or ends this one at once."""
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), torch.Size, torch.dtype, torch.device)
_MOST = 100_000
"""Objects of one checkpoint that are looked at: 20 ms. One with more is written as the job does it."""


class Background(Remedy):
    """`torch.save` copies what it is to write, and a thread writes the copy, with the same function to the same file.

    One at a time: the next save waits for the last, and so does whoever asks for the file by any of its names or starts
    a process, and the job's end. What fails while it is written is raised in the first of these, and printed by its
    thread at once. Only what can be copied without any code of the job's is: tensors on the CPU in plain containers.
    """

    def apply(self) -> None:
        if sys.version_info < (3, 11):
            raise UnsuitableError("pathlib looks at files by itself before Python 3.11")
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            raise UnsuitableError("another rank may read a checkpoint before it is written")
        if not self.probe.calls.files_saved:
            raise UnsuitableError("the loop has not called torch.save")
        self.home = threading.get_ident()
        self.writing: "_Writing | None" = None
        self.staged = 0
        self.refused = "the loop has not called torch.save since"
        self.stat = os.stat
        save = self._staging(torch.save)
        for owner in (torch, torch.serialization):
            self.changes.put(owner, "save", save)
        for owner, name in _NAMING:
            self.changes.put(owner, name, self._after_it(getattr(owner, name)))
        for owner, name in _LEAVING:
            if hasattr(owner, name):
                self.changes.put(owner, name, self._after_all(getattr(owner, name)))

    def withdraw(self) -> None:
        if self.changes.made:
            # What it raises keeps all in place, and the next save of the job's hears of it.
            self._finish(tell=False)
        super().withdraw()

    def lost(self) -> str:
        return "" if self.staged else self.refused

    def _staging(self, original):
        @functools.wraps(original)
        def save(obj, f, *args, **kwargs):
            self._finish()
            if threading.get_ident() != self.home:
                return original(obj, f, *args, **kwargs)
            staged = self._stage(obj, f)
            if staged is None:
                return original(obj, f, *args, **kwargs)
            taken, path, file = staged
            self.staged += 1
            self.probe.calls.file_saved()
            self.writing = _Writing(functools.partial(original, taken, path, *args, **kwargs), file)
            self.writing.start()
            return None

        return save

    def _stage(self, obj, f) -> "tuple | None":
        """A copy, the path and the file's identity; None where the job is to write it itself."""
        if not isinstance(f, (str, os.PathLike)):
            self.refused = "torch.save is given no path"
            return None
        self.refused = _obstacle(obj)
        if self.refused:
            return None
        try:
            staged = copy.deepcopy(obj)
            # As torch.save would, so that a path that cannot be written to is the job's error at once.
            descriptor = os.open(f, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except (RuntimeError, MemoryError, OSError):
            self.refused = "what it saves could not be copied, or its file not be opened"
            return None
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return staged, os.path.abspath(f), (found.st_dev, found.st_ino)

    def _finish(self, tell: bool = True) -> None:
        """Wait for what is being written. Raises what that raised; to the job, if `tell`, once."""
        writing = self.writing
        if writing is None or writing is threading.current_thread():
            return
        writing.join()
        if tell or writing.error is None:
            self.writing = None
        if writing.error is not None:
            raise writing.error

    def _after_it(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            writing = self.writing  # another thread may have waited for it meanwhile
            if writing is not None and self._is_about(writing, args, kwargs):
                self._finish()
            return original(*args, **kwargs)

        return call

    def _after_all(self, original):
        @functools.wraps(original)
        def call(*args, **kwargs):
            self._finish()
            return original(*args, **kwargs)

        return call

    def _is_about(self, writing, args: tuple, kwargs: dict) -> bool:
        """Whether a call names the file, or a directory; or one by a way that cannot be followed."""
        if any(name.endswith("dir_fd") for name in kwargs):
            return True
        for word in (*args[:2], *kwargs.values()):
            if isinstance(word, (str, bytes, os.PathLike, int)):
                try:
                    found = self.stat(word)
                except (OSError, ValueError):
                    continue
                if (found.st_dev, found.st_ino) == writing.file or stat.S_ISDIR(found.st_mode):
                    return True
        return False


class _Writing(threading.Thread):
    """Not a daemon: the interpreter waits for it before it ends."""

    def __init__(self, write, file: "tuple[int, int]") -> None:
        super().__init__(name="checkpoint")
        self.write = write
        self.file = file
        self.error: "BaseException | None" = None

    def run(self) -> None:
        try:
            self.write()
        except BaseException as error:
            self.error = error
            raise
        finally:
            del self.write  # and the copy with it


def _obstacle(saved) -> str:
    """Why it is not copied; "" where it can be."""
    waiting, met = [saved], 0
    while waiting:
        one = waiting.pop()
        kind = type(one)
        met += 1
        if met > _MOST:
            return f"a checkpoint holds more than {_MOST} objects"
        if kind in _MAPPINGS:
            waiting += [*dict.keys(one), *dict.values(one)]
        elif kind in (list, tuple, set, frozenset):
            waiting += one
        elif kind is argparse.Namespace:
            waiting += vars(one).values()
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            if one.device.type != "cpu":
                return "tensors on a device would take as much of its memory again"
        elif kind.__module__ == "numpy" and getattr(getattr(one, "dtype", None), "hasobject", True) is False:
            pass
        elif kind not in _PLAIN:
            return f"a checkpoint holds objects of the job's own ({kind.__name__})"
    return ""
