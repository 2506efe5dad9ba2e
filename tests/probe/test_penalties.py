"""Squares of parameters that a loss adds up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch import nn

from perfdoctor.injected._perfdoctor_probe.windows import equivalents

MODEL = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
BATCH = torch.randn(8, 256)


def squared() -> torch.Tensor:
    return MODEL(BATCH).mean() + sum(one.pow(2).sum() for one in MODEL.parameters())


def multiplied() -> torch.Tensor:
    return MODEL(BATCH).mean() + sum((one * one).sum() for one in MODEL.parameters())


def read_again() -> torch.Tensor:
    squares = [one.square() for one in MODEL.parameters()]
    return MODEL(BATCH).mean() + sum(one.sum() for one in squares) + squares[0].amax()


def frozen() -> torch.Tensor:
    with torch.no_grad():
        size = sum(one.detach().pow(2).sum() for one in MODEL.parameters())
    return MODEL(BATCH).mean() / size


def of_what_is_computed() -> torch.Tensor:
    return MODEL(BATCH).pow(2).sum()


@pytest.mark.parametrize("step", [squared, multiplied])
def test_they_are_found_at_their_line_forwards_and_backwards(
    step: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equivalents, "_LEAST_NS", 0)
    (row,) = watched(step)
    assert (row["kind"], row["at"], row["times_per_step"]) == ("penalty", step.__code__.co_firstlineno + 1, 4.0)
    assert row["forward_ms"] > 0 and row["backward_ms"] > 0


def test_squares_that_somebody_else_reads_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalents, "_LEAST_NS", 0)
    (row,) = (row for row in watched(read_again) if row["kind"] == "penalty")
    assert row["times_per_step"] == 3.0


@pytest.mark.parametrize("step", [frozen, of_what_is_computed])
def test_squares_of_what_does_not_learn_are_left_alone(
    step: Callable[[], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equivalents, "_LEAST_NS", 0)
    assert not [row for row in watched(step) if row["kind"] == "penalty"]
