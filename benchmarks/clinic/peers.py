"""What a user would otherwise reach for."""

from __future__ import annotations

from collections.abc import Callable

from .case import Program
from .judgement import Judgement


def known() -> dict[str, Callable[[Program], Judgement]]:
    """By name."""
    return {}
