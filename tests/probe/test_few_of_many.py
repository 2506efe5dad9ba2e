"""Permutations of which a few places are used."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from rewriting import watched

MANY = 300_000
ROWS = torch.randn(MANY, 4)
WEIGHT = torch.randn(4, 4, requires_grad=True)
GENERATOR = np.random.default_rng(3)


def _passed(rows: torch.Tensor) -> torch.Tensor:
    return (rows @ WEIGHT).square()


def shuffled() -> torch.Tensor:
    picked = torch.randperm(MANY)[:256]
    return _passed(ROWS[picked] + ROWS[picked])


def shuffled_by_a_generator() -> torch.Tensor:
    picked = torch.randperm(MANY, generator=torch.Generator().manual_seed(1))[-256:]
    return _passed(ROWS.index_select(0, picked))


def all_of_it() -> torch.Tensor:
    return _passed(ROWS[torch.randperm(MANY)])


def part_by_part() -> torch.Tensor:
    order = torch.randperm(MANY)
    return torch.stack([_passed(ROWS[part]) for part in order.split(256)[:3]])


def _once() -> Callable[[], torch.Tensor]:
    """A loop that shuffles for each epoch, here of ten steps, and goes on with the next part in each step."""
    parts: list[torch.Tensor] = []

    def step() -> torch.Tensor:
        if not parts:
            parts.extend(torch.randperm(MANY).split(256)[:10])
        return _passed(ROWS[parts.pop()])

    return step


def chosen() -> torch.Tensor:
    return _passed(ROWS[np.random.choice(MANY, 256, replace=False)])


def chosen_from_numbers() -> torch.Tensor:
    return _passed(ROWS[np.random.choice(a=np.arange(MANY), size=(256,), replace=False)])


def chosen_with_replacement() -> torch.Tensor:
    return _passed(ROWS[np.random.choice(MANY, 256)])


def chosen_by_chances() -> torch.Tensor:
    return _passed(ROWS[np.random.choice(1_000, 256, replace=False, p=np.full(1_000, 1e-3))])


def chosen_by_a_generator() -> torch.Tensor:
    return _passed(ROWS[GENERATOR.choice(MANY, 256, replace=False)])


@pytest.mark.parametrize("step", [shuffled, shuffled_by_a_generator, chosen, chosen_from_numbers])
def test_a_permutation_of_all_for_a_few_is_found_with_what_drawing_takes(step: Callable[[], torch.Tensor]) -> None:
    (row,) = watched(step)
    assert row["kind"] == step.__name__.partition("_")[0]
    assert row["at"] == step.__code__.co_firstlineno + 1
    assert (row["times_per_step"], row["shape"]) == (1.0, [MANY])
    assert 0 < row["other_forward_ms"] < row["forward_ms"] and row["backward_ms"] == row["other_backward_ms"] == 0


@pytest.mark.parametrize(
    "step",
    [all_of_it, part_by_part, _once(), chosen_with_replacement, chosen_by_chances, chosen_by_a_generator],
)
def test_what_is_used_up_or_drawn_otherwise_is_not(step: Callable[[], torch.Tensor]) -> None:
    assert not watched(step)


def test_the_job_draws_what_it_would_have_drawn() -> None:
    def numbers(watch: bool) -> tuple[torch.Tensor, np.ndarray]:
        torch.manual_seed(0)
        np.random.seed(0)
        for step in (shuffled, chosen):
            if watch:
                watched(step)
            else:
                for _ in range(4):  # the window's helper makes one step before it opens
                    step()
        return torch.rand(3), np.random.rand(3)

    (ours, theirs), before = (numbers(watch) for watch in (True, False)), np.random.choice
    assert torch.equal(ours[0], theirs[0]) and np.array_equal(ours[1], theirs[1])
    assert np.random.choice == before
