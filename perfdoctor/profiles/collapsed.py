"""Collapsed stacks, one a line with its number of samples: what flamegraph.pl, inferno and speedscope read.

https://github.com/brendangregg/FlameGraph
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .model import Profile
from .tree import path


def render(profiles: Sequence[Profile]) -> str:
    """All profiles; the name of each is the outermost frame."""
    counts: Counter[str] = Counter()
    for profile in profiles:
        for stack in profile.stacks:
            counts[";".join(map(_plain, (profile.name, *(name for name, _ in path(stack)))))] += stack.samples
    return "".join(f"{stack} {count}\n" for stack, count in sorted(counts.items()))


def _plain(name: str) -> str:
    """Without what ends a frame or a line."""
    return " ".join(name.replace(";", ":").split())
