"""Inverses that are only multiplied with, and triangular matrices that are treated as any others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


ROOT = _drawn(64, 48, 48)
COVARIANCE = (ROOT @ ROOT.mT / 48 + torch.eye(48)).detach().requires_grad_()
ONE = (_drawn(160, 160) / 40 + torch.eye(160)).detach().requires_grad_()
ROW, COLUMN, SIDE = _drawn(64, 1, 48), _drawn(64, 48, 1), _drawn(160, 20)
LOWER = (ROOT.tril(-1) / 48 + torch.eye(48)).detach().requires_grad_()


BENDS = 2 * torch.eye(160) - torch.eye(160).roll(1, 0).tril(-1) - torch.eye(160).roll(-1, 0).triu(1)
BEAM = (BENDS.T * torch.logspace(0, 4, 160) @ BENDS).expand(8, 160, 160).contiguous().requires_grad_()
"""Stiff at one end and soft at the other: in float32 its inverse is off by a hundredth."""
LOADS = torch.ones(8, 160, 1)


def from_the_left() -> torch.Tensor:
    return torch.inverse(COVARIANCE) @ COLUMN


def from_the_right() -> torch.Tensor:
    return ROW @ torch.linalg.inv(COVARIANCE)


def mahalanobis() -> torch.Tensor:
    return ROW @ COVARIANCE.inverse() @ COLUMN


def turned() -> torch.Tensor:
    return torch.inverse(COVARIANCE).mT @ COLUMN


def of_one() -> torch.Tensor:
    return torch.inverse(ONE) @ SIDE


def ill_conditioned() -> torch.Tensor:
    return torch.linalg.inv(BEAM) @ LOADS


@pytest.mark.parametrize("step", [from_the_left, from_the_right, mahalanobis, turned, of_one, ill_conditioned])
def test_an_inverse_is_solved_with(step: Callable[[], torch.Tensor]) -> None:
    _told(step, "inverse")


def log_determinant() -> torch.Tensor:
    return torch.slogdet(LOWER)[1]


def by_logdet() -> torch.Tensor:
    return torch.logdet(LOWER.mT)


def determinant() -> torch.Tensor:
    return torch.linalg.det(LOWER)


@pytest.mark.parametrize("step", [log_determinant, by_logdet, determinant])
def test_the_determinant_of_triangles_is_that_of_their_diagonals(step: Callable[[], torch.Tensor]) -> None:
    _told(step, "triangular-determinant")


def inverse_of_triangles() -> torch.Tensor:
    return torch.inverse(LOWER).sum(-1)


def test_triangles_are_substituted_for() -> None:
    _told(inverse_of_triangles, "triangular-inverse")


def _told(step: Callable[[], torch.Tensor], kind: str) -> None:
    found = {row["kind"]: row for row in watched(step)}
    assert kind in found
    row = found[kind]
    assert row["times_per_step"] == 1.0 and row["at"] == step.__code__.co_firstlineno + 1
    assert row["other_forward_ms"] + row["other_backward_ms"] < row["forward_ms"] + row["backward_ms"]


def read_twice() -> torch.Tensor:
    inverse = torch.inverse(COVARIANCE)
    return (inverse @ COLUMN).sum() + inverse.square().sum()


def determinants_of_any() -> torch.Tensor:
    return torch.logdet(COVARIANCE)


def solved() -> torch.Tensor:
    return torch.linalg.solve(COVARIANCE, COLUMN)


@pytest.mark.parametrize("step", [read_twice, determinants_of_any, solved])
def test_what_is_needed_is_left_alone(step: Callable[[], torch.Tensor]) -> None:
    kinds = {row["kind"] for row in watched(step)}
    assert not kinds & {"inverse", "triangular-determinant", "triangular-inverse"}
