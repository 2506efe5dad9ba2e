"""Modules of one class that a loop calls one after the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from users_file import UsersFile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import stacked
from perfdoctor.injected._perfdoctor_probe.windows import siblings as windows_siblings
from perfdoctor.injected._perfdoctor_probe.windows.layers import Layers
from perfdoctor.injected._perfdoctor_probe.windows.siblings import Siblings

WIDTH = 16


class Head(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(WIDTH, width), nn.Linear(WIDTH, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.key(x), -1) * self.value(x)


class Model(nn.Module):
    def __init__(self, *heads: nn.Module) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads or [Head() for _ in range(4)])


class Joined(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([head(x) for head in self.heads], -1)


class OfParts(Model):
    """Each has its own input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = []
        for head, part in zip(self.heads, x.split(2), strict=True):
            made.append(head(part))
        return torch.cat(made)


class InTurn(Model):
    def __init__(self) -> None:
        super().__init__(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.heads:
            x = layer(x)
        return x


class Unequal(Joined):
    def __init__(self) -> None:
        super().__init__(*(Head(width) for width in (4, 4, 4, 8)))


class Few(Joined):
    def __init__(self) -> None:
        super().__init__(Head(), Head(), Head())


class AmongOthers(Joined):
    """What comes before and after them has none."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(super().forward(self.first(x)))


class Gated(nn.Module):
    """A cell with four gates of each, as attributes of its own."""

    def __init__(self) -> None:
        super().__init__()
        for name in "ifgo":
            setattr(self, f"x_{name}", nn.Linear(WIDTH, WIDTH))
            setattr(self, f"h_{name}", nn.Linear(WIDTH, WIDTH, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = torch.zeros_like(x)
        for _ in range(3):
            i = torch.sigmoid(self.x_i(x) + self.h_i(h))
            f = torch.sigmoid(self.x_f(x) + self.h_f(h))
            g = torch.tanh(self.x_g(x) + self.h_g(h))
            o = torch.sigmoid(self.x_o(x) + self.h_o(h))
            c = f * c + i * g
            h = o * torch.tanh(c)
        return h


class Stack(nn.Module):
    """Four layers of one shape, each of which is given what the one before makes."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three, self.four = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.four(self.three(self.two(self.one(x))))


class Dropping(Head):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(super().forward(x), 0.5, train=True)


def _rows(model: nn.Module) -> list[tuple[dict[str, Any], Siblings]]:
    layers = Layers(UsersFile(__file__), torch.optim.SGD(model.parameters()))
    layers.open()
    for _ in range(2):
        model(torch.randn(8, WIDTH)).sum().backward()
    layers.close()
    assert layers.families is not None
    return layers.families.rows(lambda module: ({"kind": type(module).__name__, "milliseconds": 1.5}, 0.2))


def _timed(siblings: Siblings) -> dict[str, Any]:
    siblings.keep(1.0)
    return stacked.timings(siblings)


@pytest.mark.parametrize(("model", "loop"), [(Joined, "for head in self.heads"), (OfParts, "for (head, part) in ")])
def test_they_are_told_together_with_what_one_call_takes(model: type[nn.Module], loop: str) -> None:
    job = model()
    before = [one.clone() for one in job.state_dict().values()]
    ((facts, siblings),) = _rows(job)
    assert (facts["kind"], facts["members"], facts["milliseconds"]) == ("Head", 4, 6.0)
    assert facts["loop"].startswith(loop)
    assert siblings.same_input == (model is Joined)
    gradients = [one.grad.clone() for one in job.parameters()]
    timed = _timed(siblings)
    assert timed["now_ms"] > 0 and timed["stacked_ms"] > 0
    assert all(torch.equal(now, then) for now, then in zip(job.state_dict().values(), before, strict=True))
    assert all(torch.equal(one.grad, then) for one, then in zip(job.parameters(), gradients, strict=True))


def test_gates_that_are_given_the_same_are_told_together_on_whatever_lines_they_are_called() -> None:
    job = Gated()
    ((facts, siblings),) = _rows(job)
    assert (facts["kind"], facts["members"], facts["loop"]) == ("Linear", 4, "")
    assert facts["milliseconds"] == 8 * 1.5, "those of the input and those of the state"
    timed = _timed(siblings)
    assert timed["now_ms"] > 0 and timed["stacked_ms"] > 0


@pytest.mark.parametrize("model", [InTurn, Unequal, Few, Stack])
def test_what_needs_the_one_before_or_has_other_shapes_is_left_alone(model: type[nn.Module]) -> None:
    assert _rows(model()) == []


def test_what_gives_other_numbers_in_one_call_is_not_timed() -> None:
    ((_, siblings),) = _rows(Joined(*(Dropping() for _ in range(4))))
    assert _timed(siblings) == {}


def test_only_what_siblings_are_given_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for one input of 8 x 16 numbers, and for the last module's."""
    monkeypatch.setattr(windows_siblings, "_MOST_BYTES", 2 * 8 * WIDTH * 4)
    ((facts, siblings),) = _rows(AmongOthers())
    assert facts["members"] == 4 and len(siblings.passes) == 4


@pytest.mark.parametrize(("model", "inputs"), [(Joined, 1), (OfParts, 4)])
def test_what_all_are_given_is_copied_once(model: type[nn.Module], inputs: int) -> None:
    ((_, siblings),) = _rows(model())
    siblings.keep(1.0)
    assert len({id(call.inputs) for call in siblings.calls()}) == inputs
    assert siblings.modules == [], "the job's modules are its own from here on"
