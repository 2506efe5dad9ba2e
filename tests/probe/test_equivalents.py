"""Operators that others could stand for: what is tried, and on what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rewriting
import torch
from operands import (
    HIDDEN,
    KEYS,
    PICTURES,
    QUERIES,
    SCORES,
    TABLE,
    VALUES,
    WINDOWS,
)
from rewriting import watched
from torch.nn import functional
from wasteful_steps import (
    FOUND,
    all_pairs_of_nodes,
    associated,
    last_few,
    picked_by_a_table,
    picked_by_index,
    rebuilt,
    sparse,
    taken_apart,
    taken_in_slices,
    written,
    written_by_places,
)

from perfdoctor.injected._perfdoctor_probe.windows import equivalents


def first_few() -> torch.Tensor:
    """A view. The sum outside reads it, and needs a line of the file that the step is in: this one."""
    return SCORES.sort(dim=1, descending=True)[0][:, :10]


CASES = [*((kind, step) for kind, steps in FOUND.items() for step in steps), ("top", first_few)]


@pytest.mark.parametrize(("kind", "step"), CASES)
def test_it_is_found_where_it_begins_with_what_both_ways_take(kind: str, step: Callable[[], torch.Tensor]) -> None:
    (row,) = watched(step)
    assert row["kind"] == kind
    assert step.__code__.co_firstlineno < row["at"] <= row["then_at"]
    assert 0 <= row["other_forward_ms"] < row["forward_ms"]
    passes_through = kind not in ("rank", "second-sort", "rebuilt") and step is not last_few
    assert (row["backward_ms"] > 0) == passes_through == (row["other_backward_ms"] > 0) or kind == "grown"


@pytest.mark.parametrize(("quicker", "found"), [(2.0, True), (4000.0, False)])
def test_a_way_that_spares_a_part_is_compared_with_what_the_jobs_own_takes_a_second_time(
    monkeypatch: pytest.MonkeyPatch, quicker: float, found: bool
) -> None:
    """It finds its numbers in the caches, as the other way does: a product that took 6 ms in the step was told to take
    1.4 without what is repeated in it, a third of its rows, which changed nothing."""
    timed: list[int] = []

    def tried(other: Any, now_ns: int, result: torch.Tensor) -> Any:
        monkeypatch.setattr(rewriting, "AS_IT_IS_NS", now_ns / quicker)
        timed.append(now_ns)
        return original(other, now_ns, result)

    original = equivalents._timed
    monkeypatch.setattr(equivalents, "_timed", tried)
    rows = watched(all_pairs_of_nodes)
    assert bool(rows) is found and timed
    for row in rows:
        assert row["other_forward_ms"] == pytest.approx(quicker * 0.01, rel=0.05)


@pytest.mark.parametrize(
    ("step", "times", "shape"), [(written, 199, [16, 200, 64]), (written_by_places, 19, [200, 64])]
)
def test_parts_that_are_written_one_by_one_cost_what_the_backward_pass_copies(
    step: Callable[[], torch.Tensor], times: int, shape: list[int]
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"], row["shape"]) == ("written", times, shape)
    assert row["at"] == row["then_at"] == step.__code__.co_firstlineno + 3
    assert row["other_forward_ms"] == row["forward_ms"] > 0, "parts are copied once to be joined, too"
    assert row["backward_ms"] > row["other_backward_ms"] == 0


@pytest.mark.parametrize("step", [taken_apart, taken_in_slices])
def test_parts_that_are_read_one_by_one_cost_what_the_backward_pass_fills_and_adds(
    step: Callable[[], torch.Tensor],
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"], row["shape"]) == ("taken-apart", 1.0, [16, 200, 64])
    assert row["at"] == row["then_at"] == step.__code__.co_firstlineno + 3
    parts = 200 if step is taken_apart else 20
    assert row["forward_ms"] == row["other_forward_ms"] == 0
    assert row["backward_ms"] == pytest.approx(parts / 2 * row["other_backward_ms"], rel=0.01)


@pytest.mark.parametrize("step", [picked_by_index, picked_by_a_table])
def test_rows_that_are_picked_by_an_index_cost_what_adding_up_their_gradients_does(
    step: Callable[[], torch.Tensor],
) -> None:
    (row,) = watched(step)
    assert (row["kind"], row["times_per_step"]) == ("indexed", 1.0)
    assert row["at"] == step.__code__.co_firstlineno + 1
    assert row["backward_ms"] > row["other_backward_ms"] > 0


def test_a_queue_that_is_joined_anew_counts_in_the_first_step_too() -> None:
    (row,) = watched(rebuilt)
    assert row["times_per_step"] == 1.0 and row["shape"] == [100_000, 64]


def test_a_memory_that_is_joined_anew_counts_while_it_is_not_full_yet() -> None:
    rows = torch.zeros(50_000, 64)

    def filling() -> torch.Tensor:
        nonlocal rows
        rows = torch.cat([rows, HIDDEN.detach()])[-60_000:]
        return HIDDEN.sum()

    (row,) = watched(filling)
    assert (row["kind"], row["times_per_step"]) == ("rebuilt", 1.0)


def test_what_is_made_twice_as_large_is_not_joined_anew_for_a_few() -> None:
    rows = torch.zeros(50_000, 64)

    def doubling() -> torch.Tensor:
        nonlocal rows
        rows = torch.cat([rows, rows + 1.0])
        return HIDDEN.sum()

    assert watched(doubling) == []


def test_a_matrix_that_is_0_in_places_is_none_of_blocks() -> None:
    def chain() -> torch.Tensor:
        near = (torch.arange(1500)[:, None] - torch.arange(1500)).abs() < 40
        return (near * torch.rand(1500, 1500)) @ TABLE

    assert watched(chain) == []


def test_a_convolution_of_which_others_read_more_keeps_its_stride() -> None:
    def read_twice() -> torch.Tensor:
        made = functional.conv2d(PICTURES, WINDOWS, padding=1)
        return made[:, :, ::4, ::4].relu().sum() + made.square().mean()

    assert watched(read_twice) == []


def test_what_need_not_be_made_has_its_shape_and_its_lines() -> None:
    (row,) = watched(associated)
    assert row["shape"] == [4, 512, 512] and row["times_per_step"] == 1.0
    assert (row["at"], row["then_at"]) == tuple(associated.__code__.co_firstlineno + line for line in (1, 2))


def test_a_product_counts_in_each_step_though_it_is_looked_at_in_the_second_one() -> None:
    (row,) = watched(sparse, steps=2)
    assert row["times_per_step"] == 1.0


def test_the_job_computes_what_it_would_have() -> None:
    def gradients() -> list[torch.Tensor]:
        for one in (QUERIES, KEYS, VALUES):
            one.grad = None
        watched(associated, steps=2)
        return [one.grad.clone() for one in (QUERIES, KEYS, VALUES) if one.grad is not None]

    seen = gradients()
    for one in (QUERIES, KEYS, VALUES):
        one.grad = None
    for _ in range(3):
        associated().sum().backward()
    assert all(torch.equal(one, other.grad) for one, other in zip(seen, (QUERIES, KEYS, VALUES), strict=True))
