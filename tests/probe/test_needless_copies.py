"""Copies that nobody needs: nothing is written to them, nor to what they are copies of, while both are there."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rewriting import watched
from torch import nn
from torch.nn import functional

QUEUE = torch.randn(256, 512)
ROWS = torch.randn(32, 256, requires_grad=True)
HIDDEN = torch.randn(512, 512, requires_grad=True)
KEPT: list[torch.Tensor] = []


def _copied(step: Callable[[], torch.Tensor]) -> list[dict[str, Any]]:
    KEPT.clear()
    try:
        return [row for row in watched(step) if row["kind"] == "copied"]
    finally:
        KEPT.clear()


def all_negatives() -> torch.Tensor:
    return ROWS @ QUEUE.clone().detach()


def to_be_sure() -> torch.Tensor:
    hidden = HIDDEN * 2
    hidden = hidden.clone()
    return hidden.tanh()


@pytest.mark.parametrize(("step", "line", "shape"), [(all_negatives, 1, [256, 512]), (to_be_sure, 2, [512, 512])])
def test_a_copy_that_is_only_read_is_told(step: Callable[[], torch.Tensor], line: int, shape: list[int]) -> None:
    (row,) = _copied(step)
    assert (row["at"] - step.__code__.co_firstlineno, row["shape"], row["times_per_step"]) == (line, shape, 1.0)
    assert row["forward_ms"] > 0 == row["other_forward_ms"] == row["other_backward_ms"]


def written_to() -> torch.Tensor:
    hidden = HIDDEN.clone()
    hidden[0] = 0.0
    return hidden.tanh()


def original_changes() -> torch.Tensor:
    negatives = QUEUE.clone()
    scores = ROWS @ negatives
    QUEUE[:, 0] = 1.0
    return scores


def changed_by_a_layer() -> torch.Tensor:
    return functional.relu(HIDDEN.clone(), inplace=True)


def laid_out_otherwise() -> torch.Tensor:
    return ROWS @ QUEUE.view(512, 256).t().contiguous()


def kept_for_later() -> torch.Tensor:
    KEPT.append(QUEUE.clone())
    return ROWS @ QUEUE


def small() -> torch.Tensor:
    return ROWS.clone() @ QUEUE


class Snapshots:
    model = nn.Linear(512, 512)

    @classmethod
    def step(cls) -> torch.Tensor:
        KEPT[:] = [copy.deepcopy(one) for one in cls.model.state_dict().values()]
        with torch.no_grad():
            cls.model.weight.add_(1e-3)
        return ROWS @ QUEUE


@pytest.mark.parametrize(
    "step",
    [
        written_to,
        original_changes,
        changed_by_a_layer,
        laid_out_otherwise,
        kept_for_later,
        small,
        Snapshots.step,
    ],
)
def test_a_copy_that_somebody_needs_or_keeps_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert _copied(step) == []
