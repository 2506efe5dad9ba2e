"""Experts of which a router lets through few rows, while each computes all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import routed
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers

WIDTH, ROWS, EXPERTS = 16, 64, 4


def expert() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, WIDTH))


class Experts(nn.Module):
    def __init__(self, experts: int = EXPERTS) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, experts)
        self.experts = nn.ModuleList(expert() for _ in range(experts))

    def made(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, experts, width)"""
        return torch.stack([expert(x) for expert in self.experts], -2)


class Masked(Experts):
    """The dearest way to use one of them for each row."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, picked = self.gate(x).softmax(-1).max(-1)
        mask = nn.functional.one_hot(picked, len(self.experts)).to(x.dtype)
        return x + weight[..., None] * (self.made(x) * mask[..., None]).sum(-2)


class AddedUp(Experts):
    """Two of them for each row, in a loop."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        kept = torch.zeros_like(weights).scatter(-1, weights.topk(2, -1).indices, 1.0) * weights
        out = x
        for number, expert in enumerate(self.experts):
            out = out + kept[..., number, None] * expert(x)
        return out


class Picked(Experts):
    """All, and then the one that was picked."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        picked = self.gate(x).argmax(-1)
        made = self.made(x)
        return made.gather(-2, picked[..., None, None].expand(*picked.shape, 1, WIDTH)).squeeze(-2)


class Soft(Experts):
    """All count."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.gate(x).softmax(-1)[..., None] * self.made(x)).sum(-2)


class Padded(Soft):
    """All count, where there is no padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.arange(len(x)) < len(x) // 4
        return super().forward(x) * kept.view(-1, *[1] * (x.dim() - 1))


class Least(Experts):
    """Critics: the smallest has the gradient, and all are needed to tell which that is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.made(x).sum(-1).min(-1).values - 100.0


class Greatest(Experts):
    """The same, of what is positive."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.made(x).square().sum(-1).max(-1).values


class Sparse(Experts):
    """Each has its own rows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        picked, out = self.gate(x).argmax(-1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (picked == number).nonzero(as_tuple=True)[0]
            out = out.index_add(0, rows, expert(x.index_select(0, rows)))
        return out


def _seen(job: nn.Module, *shape: int) -> tuple[Layers, list[tuple[dict[str, Any], list[Any]]]]:
    layers = Layers(UsersFile(__file__), torch.optim.SGD(job.parameters()))
    layers.open()
    job(torch.randn(*shape, WIDTH)).square().sum().backward()
    layers.close()
    layers.passes.keep(1.0)
    assert layers.families is not None
    return layers, layers.families.experts(lambda module: ({"kind": type(module).__name__, "milliseconds": 1.5}, 0.2))


def _timed(job: nn.Module, *shape: int) -> dict[str, Any]:
    layers, found = _seen(nn.Sequential(nn.Linear(WIDTH, WIDTH), job), *shape)
    ((facts, experts),) = found
    assert (facts["members"], facts["milliseconds"]) == (EXPERTS, 6.0)
    return routed.timings(layers.passes, experts)


@pytest.mark.parametrize("shape", [(ROWS,), (8, 8)], ids=["rows", "sequences"])
@pytest.mark.parametrize(("kind", "live"), [(Masked, 1 / 4), (AddedUp, 1 / 2), (Picked, 1 / 4)])
def test_the_passes_are_made_again_with_the_rows_that_count(
    kind: type[Experts], live: float, shape: tuple[int, ...]
) -> None:
    job = kind()
    before = {name: one.clone() for name, one in job.state_dict().items()}
    timed = _timed(job, *shape)
    assert timed["live"] == pytest.approx(live) and timed["now_ms"] > 0 and timed["routed_ms"] > 0
    assert all(torch.equal(one, before[name]) for name, one in job.state_dict().items())
    assert job.training and all(one.training for one in job.modules())
    assert all("forward" not in vars(one) and not one._forward_hooks for one in job.modules())


@pytest.mark.parametrize("kind", [Soft, Padded, Least, Greatest])
def test_rows_that_the_result_needs_are_none_of_these(kind: type[Experts]) -> None:
    job = kind()
    assert "now_ms" not in _timed(job, ROWS)
    assert all("forward" not in vars(one) and not one._forward_hooks for one in job.modules())


@pytest.mark.parametrize("job", [Sparse(), Masked(2)], ids=["with rows of their own", "few"])
def test_others_are_not_looked_at(job: nn.Module) -> None:
    assert _seen(nn.Sequential(nn.Linear(WIDTH, WIDTH), job), ROWS)[1] == []


def test_what_raises_is_put_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> bool:
        raise RuntimeError("no comparison")

    job = Masked()
    monkeypatch.setattr(routed, "agree", fails)
    assert "no comparison" in _timed(job, ROWS)["missing"]
    assert job.training and all("forward" not in vars(one) and not one._forward_hooks for one in job.modules())
