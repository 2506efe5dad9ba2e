"""How a data-loader worker makes its batches: an early one line by line, three more with calls of functions followed,
one with an eye on the line at which a generator keeps the worker's share.

A later one is made line by line too, where batches take longer and longer. None of them counts as timed.
"""

import sys

from .line_clock import LineClock

_LINES_OF = 4
"""A later batch than those that import and warm up."""
_CALLS_OF = (5, 6, 7)
"""What is called once per batch is called again in the second, and with nobody listening in the third."""
_SHARES_OF = 8


def closer_look(number: int, is_slower: bool, is_early: bool, sites, loop, is_iterable: bool):
    """How to look at batch `number`, counted from 1; None where nobody does, or where the job traces or profiles.
    `is_early`: the worker is one of the first. `is_iterable`: its data set gives samples in an order of its own."""
    if number == _CALLS_OF[0] and is_early and sys.getprofile() is None and sys.gettrace() is None:
        # Workers that every epoch starts anew do without.
        from .same_results import FollowedBatches

        return _Calls(FollowedBatches(sites, loop))
    if number == _SHARES_OF and is_early and is_iterable and sys.gettrace() is None:
        from .late_sharding import LateSharding

        return LateSharding(sites)
    if (number == _LINES_OF or is_slower) and sys.gettrace() is None:
        return _Lines(sites, loop, "making" if number == _LINES_OF else "later_making")
    return None


class _Lines:
    """One batch."""

    def __init__(self, sites, loop, kind: str) -> None:
        self.clock = LineClock(sites, loop)
        self.kind = kind

    def begin(self) -> None:
        self.clock.begin()

    def end(self) -> "dict | None":
        """The record."""
        self.clock.end()
        return {"kind": self.kind, **self.clock.summary(1)}


class _Calls:
    """Batches one after another."""

    def __init__(self, followed) -> None:
        self.followed = followed

    def begin(self) -> None:
        self.followed.begin()

    def end(self) -> "dict | None":
        """The record; None while another batch is to be looked at."""
        self.followed.end()
        if self.followed.batches < len(_CALLS_OF):
            return None
        return {"kind": "same_making", **self.followed.summary()}
