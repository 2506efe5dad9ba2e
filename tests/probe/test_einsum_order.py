"""Einsums of more than two operands: another order where it multiplies less, tried forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rewriting import watched
from torch import einsum

from perfdoctor.injected._perfdoctor_probe.windows.einsums import better


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()


LEFT, RIGHT, MIX = _drawn(2, 96, 16), _drawn(2, 96, 16), _drawn(16, 16, 8)
ENTITIES, CORE, HEAD, RELATION = _drawn(2000, 32), _drawn(32, 32, 32), _drawn(16, 32), _drawn(16, 32)


def bilinear() -> torch.Tensor:
    return torch.einsum("bid,bje,dec->bijc", LEFT, RIGHT, MIX)


def in_a_list() -> torch.Tensor:
    return torch.einsum("bid,bje,dec", [LEFT, RIGHT, MIX])


def in_sublists() -> torch.Tensor:
    return torch.einsum(LEFT, [1, 8, 3], RIGHT, [1, 9, 4], MIX, [3, 4, 2], [1, 8, 9, 2])


def by_its_name() -> torch.Tensor:
    return einsum("bid,bje,dec->bijc", LEFT, RIGHT, MIX)


def of_four() -> torch.Tensor:
    return torch.einsum("nk,ijk,bi,bj->bn", ENTITIES, CORE, HEAD, RELATION)


@pytest.mark.parametrize(
    ("step", "equation", "shape"),
    [
        (bilinear, "bid,dec,bje->bijc", [2, 16, 16, 96, 96]),
        (in_a_list, "bid,dec,bje->cij", [16, 16, 96, 96]),
        (in_sublists, "BID,DEC,BJE->BIJC", [2, 16, 16, 96, 96]),
        (by_its_name, "bid,dec,bje->bijc", [2, 16, 16, 96, 96]),
        (of_four, "ijk,bi,bj,nk->bn", [32, 32, 2000]),
    ],
    ids=["bilinear", "in_a_list", "in_sublists", "by_its_name", "of_four"],
)
def test_the_other_order_is_told_with_what_both_take(
    step: Callable[[], torch.Tensor], equation: str, shape: list[int]
) -> None:
    (row,) = (row for row in watched(step) if row["kind"] == "einsum")
    assert (row["times_per_step"], row["at"]) == (1.0, step.__code__.co_firstlineno + 1)
    assert row["other_forward_ms"] < row["forward_ms"] and row["other_backward_ms"] < row["backward_ms"]
    assert sorted(row["shape"]) == sorted(shape)
    # Of orders that take the same any will do.
    assert better(row["equation"], _operands(row["equation"])) is None
    assert sorted(row["equation"]) == sorted(equation)


def _operands(equation: str) -> list[torch.Tensor]:
    known = {"bid": LEFT, "bje": RIGHT, "dec": MIX, "nk": ENTITIES, "ijk": CORE, "bi": HEAD, "bj": RELATION}
    return [known[term] for term in equation.lower().partition("->")[0].split(",")]


def in_order() -> torch.Tensor:
    return torch.einsum("bid,dec,bje->bijc", LEFT, MIX, RIGHT)


def of_two() -> torch.Tensor:
    return torch.einsum("bid,bje->bij", LEFT, RIGHT)


def with_dots() -> torch.Tensor:
    return torch.einsum("b...d,b...e,dec->b...c", LEFT, RIGHT, MIX)


@pytest.mark.parametrize("step", [in_order, of_two, with_dots])
def test_others_are_left_alone(step: Callable[[], torch.Tensor]) -> None:
    assert not [row for row in watched(step) if row["kind"] == "einsum"]


def test_operands_of_a_compiler_that_traces_are_left_alone() -> None:
    with torch._subclasses.FakeTensorMode() as mode:
        traced = [mode.from_tensor(one) for one in (LEFT, RIGHT, MIX)]
    assert better("bid,bje,dec->bijc", traced) is None


def test_where_opt_einsum_chooses_nothing_is_tried() -> None:
    """It is not installed here: what it would choose is given as it gives it."""
    seen = watched(lambda: torch._VF.einsum("bid,bje,dec->bijc", (LEFT, RIGHT, MIX), path=[0, 2, 0, 1]))
    assert not [row for row in seen if row["kind"] == "einsum"]


def test_the_function_is_the_jobs_own_again_afterwards() -> None:
    before = torch._VF.einsum
    watched(bilinear)
    assert torch._VF.einsum is before
