"""Activations that are kept for the backward pass, in place of layers that it calls again."""

import sys

from ..microbenchmarks.checkpointing import FUNCTION, MODULE, Kept, is_known
from .base import Remedy, UnsuitableError


class _Called:
    """In the place of the reentrant kind's function."""

    @staticmethod
    def apply(function, preserve_rng_state, *args):
        """As if it were called by itself."""
        return function(*args)


class KeepActivations(Remedy):
    """`torch.utils.checkpoint` calls what it is given, once."""

    kept = None

    def apply(self) -> None:
        if not is_known():
            raise UnsuitableError("the job does not use torch.utils.checkpoint, or another version of it")
        self.changes.put(sys.modules[MODULE], FUNCTION, _Called)
        self.kept = Kept()
        self.kept.__enter__()

    def withdraw(self) -> None:
        super().withdraw()
        if self.kept is not None:
            self.kept.__exit__()
            self.kept = None
