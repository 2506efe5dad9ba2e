"""What the thresholds of all checks have in common."""

from __future__ import annotations

from typing import Protocol


class CostLimits(Protocol):
    """Shares of the step from which a cost is a finding, and an error."""

    @property
    def min_share(self) -> float: ...
    @property
    def error_share(self) -> float: ...
