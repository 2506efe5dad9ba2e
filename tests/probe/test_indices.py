"""Which classes and rows the operators' own arguments name: counted, and left as they were."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from perfdoctor.injected._perfdoctor_probe.windows import indices


class Noting(TorchDispatchMode):
    """As the call-site window calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.found = indices.Indices()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func._schema.name in indices.OPERATORS:
            self.found.note(func._schema.name, args)
        return result


def seen(*calls) -> list[dict]:
    with Noting() as mode:
        for call in calls:
            call()
    return mode.found.summary()


def row(kind: str, size: int, width: int, count: int, distinct: int, highest: int) -> dict:
    return {
        "kind": kind,
        "size": size,
        "width": width,
        "count": count,
        "distinct": distinct,
        "highest": highest,
    }


@pytest.mark.parametrize("shape", [(4,), (2, 2)], ids=["flat", "sequence"])
def test_targets_of_a_cross_entropy_are_classes(shape: tuple[int, ...]) -> None:
    scores = torch.randn(shape[0], 10, *shape[1:], requires_grad=True)
    target = torch.tensor([3, 3, -100, 7]).reshape(shape)
    kept = target.clone()

    def loss() -> None:
        torch.nn.functional.cross_entropy(scores, target).backward()

    assert seen(loss, loss) == [row("target", 10, 0, 6, 2, 7)]
    assert torch.equal(target, kept)


def test_a_class_that_is_ignored_is_not_used() -> None:
    scores, target = torch.randn(3, 10), torch.tensor([9, 2, 2])
    assert seen(lambda: torch.nn.functional.cross_entropy(scores, target, ignore_index=9)) == [
        row("target", 10, 0, 2, 1, 2)
    ]


def test_probabilities_are_no_classes() -> None:
    assert seen(lambda: torch.nn.functional.cross_entropy(torch.randn(3, 4), torch.rand(3, 4))) == []


def test_lookups_are_rows_of_a_table_without_its_padding() -> None:
    table = torch.nn.Embedding(50, 8, padding_idx=0)
    assert seen(lambda: table(torch.tensor([[0, 4, 4], [12, 0, 1]]))) == [row("lookup", 50, 8, 4, 3, 12)]


def test_after_many_calls_no_more_are_looked_at() -> None:
    table, first = torch.nn.Embedding(5, 2), torch.tensor([1])
    calls = [lambda: table(first)] * 501 + [lambda: table(torch.tensor([4]))]
    assert seen(*calls) == [row("lookup", 5, 2, 500, 1, 1)]


def test_rows_of_a_bag_are_looked_up() -> None:
    bag = torch.nn.EmbeddingBag(50, 4, padding_idx=0)
    words, starts = torch.tensor([0, 7, 7, 9]), torch.tensor([0, 2])
    assert seen(lambda: bag(words, starts)) == [row("lookup", 50, 4, 3, 2, 9)]
