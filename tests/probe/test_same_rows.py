"""Modules that are given the same rows several times over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import once_each, passes
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers

BATCH, TIMES, WIDTH = 12, 5, 16


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)


class Tower(nn.Module):
    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.tower = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), *changes.values())


class Interleaved(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x.repeat_interleave(TIMES, 0))


class Tiled(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x.repeat(TIMES, 1))


class Expanded(Tower):
    """Of rows of the last dimension; some memory is read several times."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x.unsqueeze(1).expand(-1, TIMES, -1))


class Copied(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x.unsqueeze(1).repeat(1, TIMES, 1))


class Gathered(Tower):
    """As for the edges of a graph."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x[torch.arange(BATCH * TIMES) * 7 % BATCH])


class OnAGrid(Tower):
    """The same for all samples."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grid = torch.linspace(-1, 1, 9 * WIDTH).view(9, WIDTH)
        return self.tower(grid.expand(len(x), -1, -1)) + x.unsqueeze(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = nn.GRU(4, WIDTH, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x.view(-1, 4, 4).repeat_interleave(TIMES, 0))[1][0]


class Different(Tower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x)


class Twice(Tower):
    """Rows that come twice now and then."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(torch.cat([x, x[:4]]))


class Padded(Tower):
    """Most rows are padding, and the others differ."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(torch.cat([x, torch.zeros(5 * BATCH, WIDTH)]))


class Beginning(Tower):
    """Its state begins alike in all rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x)
        for _ in range(3):
            state = x + self.tower(state)
        return state


class Dropped(Interleaved):
    def __init__(self) -> None:
        super().__init__(drop=nn.Dropout(0.5))


class Normalised(Tower):
    """Statistics of all rows are not those of the rows that differ."""

    def __init__(self) -> None:
        super().__init__(norm=nn.BatchNorm1d(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tower(x[torch.arange(BATCH * TIMES).square() % BATCH])


def _rows(model: nn.Module, x: torch.Tensor | None = None) -> list[tuple[dict[str, Any], passes.PassMicrobenchmark]]:
    layers = Layers(UsersFile(__file__), torch.optim.SGD(model.parameters()))
    layers.open()
    for _ in range(2):
        model(torch.randn(BATCH, WIDTH) if x is None else x).sum().backward()
    layers.close()
    return layers.repeating.rows(lambda module: ({"kind": type(module).__name__}, 1.0))


def _timed(model: nn.Module) -> dict[str, Any]:
    ((facts, found),) = _rows(model)
    found.keep(1.0)
    before = torch.get_rng_state(), [one.clone() for one in model.state_dict().values()]
    timed = once_each.timings(found, facts["rows"])
    torch.set_rng_state(before[0])
    assert all(torch.equal(now, then) for now, then in zip(model.state_dict().values(), before[1], strict=True))
    return {**facts, **timed}


@pytest.mark.parametrize(
    ("model", "rows", "different"),
    [
        (Interleaved, BATCH * TIMES, BATCH),
        (Tiled, BATCH * TIMES, BATCH),
        (Expanded, BATCH * TIMES, BATCH),
        (Copied, BATCH * TIMES, BATCH),
        (Gathered, BATCH * TIMES, BATCH),
        (Recurrent, BATCH * TIMES, BATCH),
        (OnAGrid, BATCH, 1),
    ],
)
def test_rows_that_are_the_same_are_counted_and_timed_once_each(
    model: type[nn.Module], rows: int, different: int
) -> None:
    found = _timed(model())
    assert (found["rows"], found["different"]) == (rows, different)
    assert found["kind"] in ("Sequential", "GRU"), "the outermost module that is given them, and no other"
    assert found["now_ms"] > 0 and found["once_ms"] > 0


@pytest.mark.parametrize("model", [Different, Twice, Padded, Beginning])
def test_rows_that_differ_are_left_alone(model: type[nn.Module]) -> None:
    assert _rows(model()) == []


@pytest.mark.parametrize("model", [Dropped, Normalised])
def test_rows_that_give_other_numbers_by_themselves_are_not_timed(model: type[nn.Module]) -> None:
    assert "other numbers" in _timed(model())["missing"]


def test_data_that_hold_the_same_rows_are_what_they_are() -> None:
    assert _rows(Interleaved(), torch.ones(BATCH, WIDTH)) == []
    assert _rows(Interleaved(), torch.randn(3, WIDTH).repeat(4, 1)) == []
