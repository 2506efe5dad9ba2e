"""Modules that a loop calls with one part after the other: which of them could be called once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the smallest pass may take its time."""
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()


class Comprehended(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.block(x[:, t]) for t in range(x.shape[1])], 1)


class Collected(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = []
        for part in x.unbind(1):
            state = self.block(part)
            made.append(state)
        return torch.stack(made, 1)


class Recurrent(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.zeros_like(x[:, 0])
        for part in x.unbind(1):
            state = self.block(part + state)
        return state


class Repeated(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.mean(1)
        for _ in range(6):
            x = self.block(x)
        return x


class Growing(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.block(x[:, : t + 1]).mean(1) for t in range(x.shape[1])], 1)


class Seldom(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.block(x[:, t]) for t in range(2)], 1)


class Written(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x[:, 0]) + self.block(x[:, 1]) + self.block(x[:, 2]) + self.block(x[:, 3])


def _rows(model: nn.Module, share: float = 1.0) -> list[tuple[dict[str, Any], passes.PassMicrobenchmark]]:
    """Of two training steps."""
    layers = Layers(UsersFile(__file__), torch.optim.SGD(model.parameters()))
    for _ in range(2):
        if not layers.handles:
            layers.open()
        model(torch.randn(4, 6, 16)).sum().backward()
    layers.close()
    assert layers.parts is not None
    return layers.parts.rows(lambda module: ({"kind": type(module).__name__}, share))


@pytest.mark.parametrize(
    ("model", "loop"), [(Comprehended, "for t in range(x.shape[1])"), (Collected, "for part in x.unbind(1)")]
)
def test_the_outermost_module_is_told_with_what_parts_take_at_once(model: type[nn.Module], loop: str) -> None:
    job = model()
    ((facts, found),) = _rows(job)
    assert facts == {"kind": "Block", "loop": loop}
    found.keep(1.0)
    timed = found.timings()
    assert timed["batch"] == 4
    assert [factor for factor, _ in timed["times"]] == [1, 2, 4]
    assert all(ms > 0 for _, ms in timed["times"])


@pytest.mark.parametrize("model", [Recurrent, Repeated, Growing, Seldom, Written])
def test_what_needs_the_call_before_or_is_of_other_shapes_is_left_alone(model: type[nn.Module]) -> None:
    assert _rows(model()) == []


class Neuron(nn.Module):
    """Holds a charge from call to call, in an attribute, or in place."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.weight, self.in_place = nn.Linear(16, 16), in_place
        self.register_buffer("charge", torch.zeros(4, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = 0.9 * self.charge + self.weight(x)
        if self.in_place:
            self.charge.copy_(new.detach())
        else:
            self.charge = new.detach()
        return new


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16))
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layers(x)


@pytest.mark.parametrize(
    ("block", "keeps"), [(lambda: Neuron(True), True), (lambda: Neuron(False), True), (Normed, False), (Block, False)]
)
def test_what_a_module_keeps_for_the_next_call_is_seen(block: Callable[[], nn.Module], keeps: bool) -> None:
    job = Comprehended()
    job.block = block()  # type: ignore[assignment]
    ((_, found),) = _rows(job)
    found.keep(1.0)
    before = [one.clone() for one in job.state_dict().values()]
    assert found.keeps_state() is keeps
    assert all(map(torch.equal, before, job.state_dict().values())), "the job's is as it was"


def test_what_takes_little_is_not_timed() -> None:
    assert _rows(Comprehended(), share=0.05) == []


def test_a_model_that_is_evaluated_is_left_alone() -> None:
    model = Comprehended()
    layers = Layers(UsersFile(__file__), torch.optim.SGD(model.parameters()))
    layers.open()
    with torch.no_grad():
        model.eval()(torch.randn(4, 6, 16))
    layers.close()
    assert layers.parts is not None and layers.parts.called == {}
