"""Passes that keep what activation checkpointing would compute again in the backward pass.

Its reentrant kind takes no backward pass for given inputs, which is how passes are made again: it cannot be timed so.
"""

import sys

from ..changes import Changes

MODULE = "torch.utils.checkpoint"
_AROUND = "_checkpoint_without_reentrant_generator"
"""What it does before and after it calls a function."""


class Kept:
    """While it is entered, `torch.utils.checkpoint` calls functions as if it were not there."""

    def __init__(self) -> None:
        self.calls = 0
        """Functions that would have been called again."""

    def __enter__(self) -> "Kept":
        def around(*args, **kwargs):
            self.calls += 1
            yield

        self.changes = Changes()
        self.changes.put(sys.modules[MODULE], _AROUND, around)
        return self

    def __exit__(self, *_) -> None:
        self.changes.take_back()


def is_known() -> bool:
    """Whether this version of torch makes it the way that is known here."""
    return hasattr(sys.modules.get(MODULE), _AROUND)
