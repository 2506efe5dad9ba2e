"""A flame graph: where the time of steps goes, by calls within calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from ... import wording
from ...jsonform import Json
from .model import Chart
from .numbers import shortened

LISTED = 20
"""Of the table: functions by what they take themselves."""


class Frame(Protocol):
    """A line, a function or a part of the step within those that called it."""

    @property
    def name(self) -> str: ...

    @property
    def ms(self) -> float:
        """Per step, what it calls included."""

    @property
    def users(self) -> bool:
        """Whether it is of the user's code."""

    @property
    def children(self) -> Sequence[Frame]: ...


def flame_chart(root: Frame, caption: str) -> Chart | None:
    """`root` holds all of the time, `caption` says what was measured and how. None where there is none."""
    if root.ms <= 0:
        return None
    own: dict[str, float] = defaultdict(float)
    whole: dict[str, float] = defaultdict(float)
    whole[wording.clean(root.name)] = root.ms
    data = _form(root, own, whole, frozenset([wording.clean(root.name)]))
    largest = sorted(own, key=lambda name: -own[name])[:LISTED]
    return Chart(
        title="Flame graph",
        caption=caption,
        head=("function", "itself, per step", "with what it calls", "share"),
        rows=tuple(
            (name, wording.duration(own[name]), wording.duration(whole[name]), wording.share(own[name] / root.ms))
            for name in largest
            if own[name] > 0
        ),
        data={"root": data},
    )


def _form(frame: Frame, own: dict[str, float], whole: dict[str, float], above: frozenset[str]) -> Json:
    """As d3-flame-graph takes it; sums up what each function takes. One that calls itself is counted once."""
    name = wording.clean(frame.name)
    own[name] += max(0.0, frame.ms - sum(child.ms for child in frame.children))
    children: list[Json] = []
    for child in frame.children:
        called = wording.clean(child.name)
        if called not in above:
            whole[called] += child.ms
        children.append(_form(child, own, whole, above | {called}))
    made: dict[str, Json] = {"name": name, "value": shortened(frame.ms), "users": frame.users}
    return {**made, "children": children} if children else made
