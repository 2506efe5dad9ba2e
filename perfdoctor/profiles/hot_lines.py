"""The lines of the user's that cost most: each has what it calls in libraries and in native code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ..recording.base import Site
from ..recording.lines import Line
from .model import Below, HotLine, Stack

_MOST_BELOW = 3
"""Functions, and operators, that are told of a line."""
_LEAST_BELOW = 0.05
"""Of a line's time: less says nothing about it."""


def lines(stacks: Sequence[Stack], total_ms: float, issued: Sequence[Line] = ()) -> tuple[HotLine, ...]:
    """The longest first. `issued`: what the call-site window saw of lines and their operators.

    Stacks without a line of the user's are left out: their time is no line's.
    """
    samples: Counter[tuple[Site, str]] = Counter()
    spent: defaultdict[tuple[Site, str], float] = defaultdict(float)
    below: defaultdict[tuple[Site, str], Counter[str]] = defaultdict(Counter)
    for stack in stacks:
        hot = stack.hot
        if hot is None:
            continue
        key = stack.frames[hot].site, stack.part
        samples[key] += stack.samples
        spent[key] += stack.ms
        if hot + 1 < len(stack.frames):
            below[key][stack.frames[-1].site.function] += stack.samples
    operators = _operators(issued)
    found = [
        HotLine(
            site=site,
            part=part,
            samples=samples[site, part],
            ms=ms,
            share=ms / total_ms if total_ms else 0.0,
            functions=_longest(below[site, part], samples[site, part]),
            operators=operators.get((site.file, site.line, part), ()),
        )
        for (site, part), ms in spent.items()
    ]
    return tuple(sorted(found, key=lambda line: (-line.ms, str(line.site), line.part)))


def _longest(functions: Mapping[str, int], of: int) -> tuple[Below, ...]:
    shares = sorted(((count / of, name) for name, count in functions.items()), key=lambda one: (-one[0], one[1]))
    return tuple(Below(name, share) for share, name in shares[:_MOST_BELOW] if share >= _LEAST_BELOW)


def _operators(issued: Sequence[Line]) -> dict[tuple[str, int, str], tuple[Below, ...]]:
    """By file, line and part: a site also has a function, which the two call differently."""
    return {
        (line.site.file, line.site.line, line.part): tuple(
            Below(one.name, one.share) for one in line.operators if one.share >= _LEAST_BELOW
        )
        for line in issued
    }
