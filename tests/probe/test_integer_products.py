"""Products of matrices of integers: told where floating-point numbers hold the same sums exactly."""

from __future__ import annotations

import pytest
import torch
from rewriting import watched

from perfdoctor.injected._perfdoctor_probe.windows.rewritings.integers import in_floating_point

WEIGHT = torch.ones(1, requires_grad=True)


def _drawn(largest: int, dtype: torch.dtype = torch.int64, *shape: int) -> torch.Tensor:
    return torch.randint(0, largest, shape or (256, 256), generator=torch.Generator().manual_seed(3)).to(dtype)


def _step(matrix: torch.Tensor):
    def step() -> torch.Tensor:
        return (matrix @ matrix).float() * WEIGHT

    return step


@pytest.mark.parametrize("matrix", [_drawn(2), _drawn(2, torch.int32), _drawn(2, torch.int64, 8, 128, 128)])
def test_they_are_found_and_take_less(matrix: torch.Tensor) -> None:
    (found,) = [row for row in watched(_step(matrix)) if row["kind"] == "integers"]
    assert found["times_per_step"] == 1.0 and found["other_forward_ms"] < found["forward_ms"]
    assert tuple(found["shape"]) == matrix.shape


@pytest.mark.parametrize(
    ("matrix", "dtype"),
    [(_drawn(250), torch.float32), (_drawn(260), torch.float64), (-_drawn(260), torch.float64)],
)
def test_the_smaller_type_that_is_exact_is_taken(matrix: torch.Tensor, dtype: torch.dtype, monkeypatch) -> None:
    """256 products of up to 250 x 250 are below 2**24."""
    other = in_floating_point((matrix, matrix))
    assert other is not None
    types = []
    convert = torch.Tensor.to

    def noting(tensor: torch.Tensor, to: torch.dtype) -> torch.Tensor:
        types.append(to)
        return convert(tensor, to)

    monkeypatch.setattr(torch.Tensor, "to", noting)
    assert torch.equal(other.make(), matrix @ matrix) and types[0] is dtype


@pytest.mark.parametrize("matrix", [_drawn(1 << 40), torch.randn(64, 64), torch.zeros(0, 0, dtype=torch.int64)])
def test_what_no_type_holds_is_left_alone(matrix: torch.Tensor) -> None:
    assert in_floating_point((matrix, matrix)) is None
