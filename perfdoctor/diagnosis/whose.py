"""Which ranks have a finding, in the fewest words: all of them, those of a node, or their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ..evidence.model import Evidence, ranks_in_words


def whose(having: Sequence[Evidence], everyone: Sequence[Evidence]) -> str:
    """`all ranks`, `all ranks of gpu-b`, `rank 3 on gpu-b only`; "" in a job of one rank."""
    if len(everyone) == 1:
        return ""
    if len(having) == len(everyone):
        return "all ranks"
    numbers, nodes = [one.rank for one in having], sorted({one.job.node for one in having})
    there = [one for one in everyone if one.job.node in nodes]
    if nodes[0] and len(there) == len(having) > len(nodes):
        return f"all ranks of {_listed(nodes)}"
    node = f" on {nodes[0]}" if nodes[0] and len(nodes) == 1 else ""
    return f"{ranks_in_words(numbers)}{node}{' only' * (len(numbers) == 1)}"


def _listed(nodes: Sequence[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{', '.join(nodes[:-1])} and {nodes[-1]}"
