"""Convolutions of many narrow groups, which make the same numbers as a few wide ones with zeros between."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import passes, ways
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.passes import PassMicrobenchmark
from perfdoctor.injected._perfdoctor_probe.microbenchmarks.regrouped import Regrouped, is_narrow, put_together


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "_LIMIT_NS", 1 << 60)
    monkeypatch.setattr(ways, "_BESIDE_NS", 1 << 60)


@pytest.mark.parametrize("last", [False, True], ids=["first", "channels last"])
@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(64, 64, 32), (24, 12, 6), (16, 32, 16), (20, 20, 10)], ids=str
)
def test_wide_groups_make_the_same_numbers_and_gradients(inputs: int, outputs: int, groups: int, last: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, groups=groups)
    images = torch.randn(2, inputs, 9, 9)
    if last:
        layer, images = layer.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
    assert is_narrow(layer)

    def both() -> tuple[torch.Tensor, torch.Tensor]:
        made = layer(images)
        return made, torch.autograd.grad(made.square().sum(), layer.weight)[0]

    wanted = both()
    regrouped = Regrouped()
    way = regrouped.way(None, layer)
    way.change()
    try:
        found = both()
    finally:
        way.put_back()
    assert regrouped.seen
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert torch.equal(layer(images), wanted[0])


@pytest.mark.parametrize(
    ("layer", "together"),
    [
        (nn.Conv2d(64, 64, 3, groups=32), 8),
        (nn.Conv2d(24, 24, 3, groups=12), 12),
        (nn.Conv2d(12, 12, 1, groups=4), 4),
    ],
    ids=["of 2 channels", "of 2, two dozen in all", "of 3, a dozen in all"],
)
def test_as_few_groups_are_put_together_as_fill_a_vector(layer: nn.Conv2d, together: int) -> None:
    assert put_together(layer) == together


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(64, 64, 3),
        nn.Conv2d(64, 64, 3, groups=64),
        nn.Conv2d(64, 64, 3, groups=8),
        nn.Conv2d(64, 64, 3, padding=1, padding_mode="circular", groups=32),
    ],
    ids=["no groups", "depthwise", "wide", "padded otherwise"],
)
def test_other_convolutions_are_not_narrow(layer: nn.Conv2d) -> None:
    assert not is_narrow(layer)


def test_models_with_such_layers_are_timed_in_wide_groups_alone() -> None:
    def timed(groups: int) -> dict[str, float]:
        model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=groups))
        noted = PassMicrobenchmark()
        noted.note(model, (torch.randn(2, 3, 12, 12),), {})
        noted.keep(1.0)
        return dict(ways.timings(noted, [], [])["times"])

    assert timed(16)["wide groups"] > 0
    assert "wide groups" not in timed(32)
