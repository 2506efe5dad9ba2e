"""run.json: what was started and how it ended, by the launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What the launcher says."""

    command: tuple[str, ...] = ()
    """Secrets masked."""
    cwd: str = ""
    started: str = ""
    """ISO 8601, UTC."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Allow-listed variables as the launcher found them."""
    end: str = "unknown"
    exit_code: int | None = None
    signal: int | None = None
    detail: str = ""
    problems: tuple[str, ...] = ()
    """What the launcher knows to be missing from the recording."""
    past_error: float | None = None
    """Median of how far predictions were off on this machine before; None while too few are known."""
    past_trials: int = 0
