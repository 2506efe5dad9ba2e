"""Attention whose mask lets each position see its own group alone: what it takes in each group."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch.nn.functional import scaled_dot_product_attention

POSITIONS, GROUPS = 256, 16
Q, K, V = (
    torch.randn(2, 4, POSITIONS, 16, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    for seed in range(3)
)
PLACE = torch.arange(POSITIONS) // (POSITIONS // GROUPS)
SHIFTED = PLACE.roll(5)
WITHIN = PLACE[:, None] == PLACE
ADDED = torch.zeros(POSITIONS, POSITIONS).masked_fill(~WITHIN, -1e9)
UNEVEN = (torch.arange(POSITIONS) + 4) // 16
CHAINED = (torch.arange(POSITIONS)[:, None] - torch.arange(POSITIONS)).abs() < 8


def side_by_side() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=WITHIN)


def shifted() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=SHIFTED[:, None] == SHIFTED)


def added() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=ADDED.expand(2, 1, -1, -1), scale=0.5)


@pytest.mark.parametrize("step", [side_by_side, shifted, added])
def test_it_is_tried_in_each_group(step: Callable[[], torch.Tensor]) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["shape"], row["times_per_step"]) == ("attended", [POSITIONS, POSITIONS], 1.0)
    assert row["other_forward_ms"] < row["forward_ms"] and row["other_backward_ms"] < row["backward_ms"]
    assert row["at"] == step.__code__.co_firstlineno + 1


def unmasked() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V)


def causal() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, is_causal=True)


def of_two() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=(PLACE < 8)[:, None] == (PLACE < 8))


def uneven() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=UNEVEN[:, None] == UNEVEN)


def chained() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=CHAINED)


def biased() -> torch.Tensor:
    return scaled_dot_product_attention(Q, K, V, attn_mask=ADDED + 0.1 * WITHIN * PLACE)


def of_each_sample() -> torch.Tensor:
    both = torch.stack([WITHIN, SHIFTED[:, None] == SHIFTED])[:, None]
    return scaled_dot_product_attention(Q, K, V, attn_mask=both)


@pytest.mark.parametrize("step", [unmasked, causal, of_two, uneven, chained, biased, of_each_sample])
def test_masks_that_say_anything_else_are_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert watched(step) == []
