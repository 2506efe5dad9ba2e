"""Convolutions of a few channels off a multiple of sixteen, with channels of zeros beside them or without the last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes, ways
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.evened import Evened, is_odd
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)
    monkeypatch.setattr(ways, "_BESIDE_NS", 1 << 60)


def _stage(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


class Wide(nn.Module):
    """Stages, one of them depthwise, a sum and what is flattened at last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Sequential(*_stage(3, channels))
        self.each = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.second = nn.Sequential(*_stage(channels, 2 * channels))
        self.head = nn.Linear(2 * channels * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.head(self.second(x + self.each(x)).flatten(1))


def _noted(model: nn.Module) -> PassMicrobenchmark:
    noted = PassMicrobenchmark()
    noted.note(model, (torch.randn(4, 3, 8, 8),), {})
    noted.keep(1.0)
    return noted


@pytest.mark.parametrize("last", [False, True], ids=["first", "channels last"])
@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_the_model_gives_the_same_numbers(mode: bool, last: bool) -> None:
    torch.manual_seed(0)
    model = Wide(15).train(mode)
    images = torch.randn(4, 3, 8, 8)
    if last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    wanted = model(images)
    model.load_state_dict(before)
    evened = Evened()
    way = evened.way(None, model)
    way.change()
    try:
        made = model(images)
        assert model.first[0](images).shape[1] == 16
    finally:
        way.put_back()
    assert evened.seen and torch.allclose(made, wanted, atol=1e-5)
    assert model.first[0](images).shape[1] == 15


@pytest.mark.parametrize("last", [False, True], ids=["first", "channels last"])
def test_a_few_channels_too_many_are_left_out(last: bool) -> None:
    model, images = Wide(17), torch.randn(4, 3, 8, 8)
    if last:
        model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    evened = Evened()
    way = evened.way(None, model)
    way.change()
    try:
        assert model(images).shape == (4, 5)
        first = model.first(images)
        shapes = [first.shape[1], model.second(first).shape[1]]
    finally:
        way.put_back()
    assert evened.seen and shapes == [16, 32]


@pytest.mark.parametrize("channels", [15, 17])
def test_passes_are_made_again_that_way(channels: int) -> None:
    model = Wide(channels)
    left = ways._with_even_channels(_noted(model))
    assert left is not None and left > 0
    assert nn.Conv2d(3, 15, 3)(torch.zeros(1, 3, 3, 3)).shape[1] == 15, "torch is as it was"


class Grouped(Wide):
    """A norm over groups of channels takes no more of them."""

    def __init__(self) -> None:
        super().__init__(15)
        self.second[1] = nn.GroupNorm(5, 30)


@pytest.mark.parametrize("model", [Wide(16), Wide(20), Grouped()], ids=["even", "far from it", "no more of them"])
def test_where_it_says_nothing_there_is_nothing(model: Any) -> None:
    assert ways._with_even_channels(_noted(model)) is None
    assert nn.Conv2d(3, 15, 3)(torch.zeros(1, 3, 3, 3)).shape[1] == 15


@pytest.mark.parametrize(
    ("channels", "odd"),
    [(14, True), (13, False), (16, False), (17, True), (20, False), (31, True), (35, True), (57, True), (40, False)],
)
def test_a_few_channels_are_near(channels: int, odd: bool) -> None:
    assert is_odd(nn.Conv2d(3, channels, 3)) is odd
