"""Checkpoints that are not written while their cost is measured."""

import functools
import os

import torch

from .base import Remedy, UnsuitableError


class Skipped(Remedy):
    """`torch.save` leaves a file that is there already as it is.

    What looks for the file finds it, from an earlier save. One that is saved under a new name each time is written: who
    knows the name may open it.
    """

    def apply(self) -> None:
        if not self.probe.calls.files_saved:
            raise UnsuitableError("the loop has not called torch.save")
        self.skipped = 0
        self.refused = "the loop has not called torch.save since"
        save = self._sparing(torch.save)
        for owner in (torch, torch.serialization):
            self.changes.put(owner, "save", save)

    def lost(self) -> str:
        return "" if self.skipped else self.refused

    def _sparing(self, original):
        @functools.wraps(original)
        def save(obj, f, *args, **kwargs):
            if not isinstance(f, (str, os.PathLike)):
                self.refused = "torch.save is given no path"
            elif not os.path.isfile(f):
                self.refused = "each checkpoint is a file of its own"
            else:
                self.skipped += 1
                self.probe.calls.file_saved()
                return None
            return original(obj, f, *args, **kwargs)

        return save
