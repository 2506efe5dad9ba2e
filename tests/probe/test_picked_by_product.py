"""Sums of products with a one-hot tensor, by which one number of each row is picked."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch.nn import functional

CLASSES = 800
SCORES = torch.randn(512, CLASSES, requires_grad=True)
PLANES = torch.randn(4, 6, 96, 96, requires_grad=True)
TARGET = torch.randint(0, CLASSES, (512,))
LABELS = torch.randint(0, 6, (4, 96, 96))
MADE_BEFORE = functional.one_hot(TARGET, CLASSES).float()
SIGNED = MADE_BEFORE * torch.randn(512, 1)
SPREAD = torch.softmax(torch.randn(512, CLASSES), dim=1)
SEVERAL = (torch.rand(512, CLASSES) < 0.2).float()


def loss_of_classes() -> torch.Tensor:
    return functional.cross_entropy(SCORES, functional.one_hot(TARGET, CLASSES).float())


def loss_of_planes() -> torch.Tensor:
    return functional.cross_entropy(PLANES, functional.one_hot(LABELS, 6).permute(0, 3, 1, 2).float())


def loss_by_hand() -> torch.Tensor:
    return -(functional.log_softmax(SCORES, dim=1) * MADE_BEFORE).sum(dim=1).mean()


def value_of_actions() -> torch.Tensor:
    return (SCORES * functional.one_hot(TARGET, CLASSES)).sum(1)


def weighted() -> torch.Tensor:
    return (SIGNED * SCORES).sum(-1, keepdim=True)


def of_probabilities() -> torch.Tensor:
    return functional.cross_entropy(SCORES, SPREAD)


def of_a_mask() -> torch.Tensor:
    return (SCORES * SEVERAL).sum(1)


def of_learned_weights() -> torch.Tensor:
    return (SCORES * SCORES.softmax(1)).sum(1)


def across_rows() -> torch.Tensor:
    return (SCORES * MADE_BEFORE).sum(0)


def read_elsewhere() -> torch.Tensor:
    picked = SCORES * MADE_BEFORE
    return picked.sum(1) + picked.square().sum(1)


@pytest.mark.parametrize(
    "step", [loss_of_classes, loss_of_planes, loss_by_hand, value_of_actions, weighted], ids=lambda one: one.__name__
)
def test_numbers_picked_by_a_product_could_be_gathered(step: Callable[[], torch.Tensor]) -> None:
    (row,) = [row for row in watched(step) if row["kind"] == "one-hot-sum"]
    assert row["at"] == step.__code__.co_firstlineno + 1
    assert row["shape"] == list((PLANES if step is loss_of_planes else SCORES).shape)
    assert row["other_forward_ms"] < row["forward_ms"]


def on_two_lines() -> torch.Tensor:
    wanted = functional.one_hot(LABELS, 6).permute(0, 3, 1, 2).float()
    return functional.cross_entropy(PLANES, wanted)


def test_what_makes_the_one_hot_tensor_falls_away_too() -> None:
    (row,) = [row for row in watched(on_two_lines) if row["kind"] == "one-hot-sum"]
    assert row["at"] == on_two_lines.__code__.co_firstlineno + 1


def read_as_it_is_too() -> torch.Tensor:
    wanted = functional.one_hot(TARGET, CLASSES).float()
    return functional.cross_entropy(SCORES, wanted) + (SCORES.softmax(1) - wanted).square().mean()


def test_a_one_hot_tensor_that_others_read_has_to_be_made() -> None:
    rows = [row for row in watched(read_as_it_is_too) if row["kind"] == "one-hot-sum"]
    assert [row["at"] for row in rows] in ([], [read_as_it_is_too.__code__.co_firstlineno + 2])


@pytest.mark.parametrize(
    "step",
    [of_probabilities, of_a_mask, of_learned_weights, across_rows, read_elsewhere],
    ids=lambda one: one.__name__,
)
def test_what_picks_no_single_number_of_each_row_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert [row for row in watched(step) if row["kind"] == "one-hot-sum"] == []
