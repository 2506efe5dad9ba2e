"""Passes that keep what activation checkpointing would compute again in the backward pass.

Its reentrant kind takes no backward pass for given inputs, which is how passes are made again: there the other kind
stands for it, which computes the same again.
"""

import sys

from ..changes import Changes

MODULE = "torch.utils.checkpoint"
FUNCTION = "CheckpointFunction"
"""What the reentrant kind applies."""
_AROUND = "_checkpoint_without_reentrant_generator"
"""What it does before and after it calls a function."""


class Kept:
    """While it is entered, `torch.utils.checkpoint` calls functions as if it were not there."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.calls = 0
        """Functions that would have been called again."""

    def __enter__(self) -> "Kept":
        def around(*args, **kwargs):
            self.calls += 1
            yield

        self.changes.put(sys.modules[MODULE], _AROUND, around)
        return self

    def __exit__(self, *_) -> None:
        self.changes.take_back()


class NotReentrant:
    """While it is entered, the reentrant kind is the other one."""

    def __init__(self) -> None:
        self.changes = Changes()

    def __enter__(self) -> "NotReentrant":
        module = sys.modules.get(MODULE)
        if is_known() and hasattr(module, FUNCTION):
            self.changes.put(module, FUNCTION, _OtherKind)
        return self

    def __exit__(self, *_) -> None:
        self.changes.take_back()


class _OtherKind:
    @staticmethod
    def apply(function, preserve_rng_state, *args):
        """As the reentrant kind's function is called."""
        checkpoint = sys.modules[MODULE].checkpoint
        return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=preserve_rng_state)


def is_known() -> bool:
    """Whether this version of torch makes it the way that is known here."""
    return hasattr(sys.modules.get(MODULE), _AROUND)
