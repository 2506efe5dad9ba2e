"""Time that is given away once."""

from __future__ import annotations

from ..model import Cause, Missing, Share


class Ledger:
    """A stretch of time, and who has taken how much of it, in the order in which they asked."""

    def __init__(self, whole_ms: float) -> None:
        self.left_ms = max(0.0, whole_ms)
        self.shares: list[Share] = []

    def take(self, ms: float) -> float:
        """As much of `ms` as is left."""
        taken = min(max(0.0, ms), self.left_ms)
        self.left_ms = max(0.0, self.left_ms - taken)
        return taken

    def give(self, cause: Cause, ms: float | Missing, basis: str) -> float:
        """The same for a cause, with what it was told from; a missing quantity takes nothing and is kept as such."""
        taken = 0.0 if isinstance(ms, Missing) else self.take(ms)
        self.shares.append(Share(cause, ms if isinstance(ms, Missing) else taken, basis))
        return taken

    def close(self, basis: str) -> tuple[Share, ...]:
        """All shares; what nobody took is unexplained."""
        self.give(Cause.UNEXPLAINED, self.left_ms, basis)
        return tuple(self.shares)
