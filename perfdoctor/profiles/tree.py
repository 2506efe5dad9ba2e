"""Stacks as a tree, in the form that d3-flame-graph draws: name, value, children."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypedDict

from .model import Frame, Profile, Stack

_DIGITS = 5
"""Of milliseconds: 10 ns, less than anything here is known to."""


class FlameNode(TypedDict):
    """What d3-flame-graph reads. `value` is milliseconds per step (per batch of a worker), with all children's."""

    name: str
    value: float
    users: bool
    """Whether it is a line of the user's; no part and no root is."""
    children: list[FlameNode]


@dataclass
class Node:
    """A line, a part of the step or a whole profile, with what lies below it."""

    name: str
    users: bool = False
    ms: float = 0.0
    below: dict[tuple[str, bool], Node] = field(default_factory=dict)

    def child(self, name: str, users: bool) -> Node:
        return self.below.setdefault((name, users), Node(name, users))

    @property
    def children(self) -> list[Node]:
        """By name, so that what is called from two places lies alike in both; parts in the order of their time."""
        return sorted(self.below.values(), key=lambda node: node.name)


def label(frame: Frame) -> str:
    """`Net.forward (model.py:41)`."""
    return f"{frame.site.function} ({frame.site.file}:{frame.site.line})"


def path(stack: Stack) -> list[tuple[str, bool]]:
    """From the part of the step to the innermost line: names, and whether they are the user's."""
    return [(stack.part, False), *((label(frame), frame.users) for frame in stack.frames)]


def tree(profile: Profile) -> Node:
    """The profile's stacks, by part of the step and then by line."""
    root = Node(profile.name)
    for stack in profile.stacks:
        node = root
        node.ms += stack.ms
        for name, users in path(stack):
            node = node.child(name, users)
            node.ms += stack.ms
    return root


def flame(profile: Profile) -> FlameNode:
    """The same as plain values, for JSON."""
    return _plain(tree(profile))


def _plain(node: Node) -> FlameNode:
    return {
        "name": node.name,
        "value": round(node.ms, _DIGITS),
        "users": node.users,
        "children": [_plain(child) for child in node.children],
    }
