"""Weights that are copied for each row to be multiplied with it: what each kind's product takes instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


ROWS, WIDTH = 4000, 32
KIND = torch.arange(ROWS) % 4
KINDS = torch.arange(ROWS) % 40
X = _drawn(ROWS, WIDTH)
WEIGHT, MANY = _drawn(4, WIDTH, WIDTH), _drawn(40, WIDTH, WIDTH)
TABLE = _drawn(4, WIDTH * WIDTH)


def indexed() -> torch.Tensor:
    return torch.bmm(X.unsqueeze(1), WEIGHT[KIND]).squeeze(1)


def selected() -> torch.Tensor:
    return (X.unsqueeze(1) @ WEIGHT.index_select(0, KIND)).squeeze(1)


def embedded() -> torch.Tensor:
    weight = torch.nn.functional.embedding(KIND, TABLE).view(-1, WIDTH, WIDTH)
    return torch.bmm(weight, X.unsqueeze(2)).squeeze(2)


def summed() -> torch.Tensor:
    return torch.einsum("ni,nio->no", X, WEIGHT[KIND])


def turned() -> torch.Tensor:
    return torch.bmm(X.unsqueeze(1), WEIGHT[KIND].transpose(1, 2)).squeeze(1)


def of_many_kinds() -> torch.Tensor:
    return torch.bmm(X.unsqueeze(1), MANY[KINDS]).squeeze(1)


@pytest.mark.parametrize("step", [indexed, selected, embedded, summed, turned, of_many_kinds])
def test_they_are_found_where_they_are_copied(step: Callable[[], torch.Tensor]) -> None:
    found = {row["kind"]: row for row in watched(step)}
    assert found.keys() == {"by-kind"}
    row = found["by-kind"]
    assert row["times_per_step"] == 1.0
    assert row["other_forward_ms"] < row["forward_ms"] and row["backward_ms"] > 0
    first = step.__code__.co_firstlineno
    assert first < row["at"] <= row["then_at"] <= first + 2


def few_rows() -> torch.Tensor:
    return torch.bmm(X[:12].unsqueeze(1), WEIGHT[KIND[:12]])


def read_again() -> torch.Tensor:
    weight = WEIGHT[KIND]
    return torch.bmm(X.unsqueeze(1), weight).squeeze(1) + weight.sum((1, 2)).unsqueeze(1)


def each_its_own() -> torch.Tensor:
    return torch.bmm(X[:400].unsqueeze(1), MANY.repeat(10, 1, 1)[torch.arange(400)]).squeeze(1)


@pytest.mark.parametrize("step", [few_rows, read_again, each_its_own])
def test_what_is_cheap_or_needed_otherwise_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert "by-kind" not in {row["kind"] for row in watched(step)}
