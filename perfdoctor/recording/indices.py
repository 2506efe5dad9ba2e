"""What the indices of losses and embedding tables point at, of all that there is to point at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class IndexUse:
    """Indices into the classes of a head, or into the rows of a table, in the call-site window."""

    kind: Literal["target", "lookup"]
    """Classes that a loss was given as targets, or rows of an embedding table."""
    size: int
    """Classes or rows that there are."""
    width: int
    """Numbers in a row; 0 for classes."""
    count: int
    """Indices seen, in all profiled steps."""
    distinct: int
    """Different ones among them."""
    highest: int

    @property
    def used(self) -> int:
        """Classes or rows up to the highest that was seen."""
        return self.highest + 1

    @property
    def unused_share(self) -> float:
        """Of all classes or rows: those above the highest that was seen."""
        return max(0.0, 1 - self.used / self.size) if self.size > 0 else 0.0
