"""The convolution that takes most, timed as other layers in its place."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import convolutions
from perfdoctor.injected._perfdoctor_probe.windows import operators


def seen(network: nn.Module, *shape: int) -> tuple[list[Any], list[Any]]:
    """Operators of one step and their arguments, as the operator window has them, but for what they took: 9 ms for a
    convolution and its gradients, whichever, and 1 ms for everything else."""
    with profile(record_shapes=True) as step:
        network(torch.randn(*shape)).sum().backward()
    host, device = operators.divided(step.kineto_results.events(), False)
    summary, arguments = operators.summarise(host, device, 1)
    rows = summary["ops"]
    others = [row for row in rows if not row["name"].startswith("convolution")]
    for row in rows:
        ms = 1.0 / len(others) if row in others else 9.0 * row["calls_per_step"]
        row.update(self_ms_per_step=ms, total_ms_per_step=ms)
    return rows, arguments


@pytest.mark.parametrize(
    ("layer", "shape", "ways"),
    [
        (
            nn.Conv2d(16, 16, 7, padding=3),
            (2, 16, 12, 12),
            {"small", "depthwise", "groups", "bottleneck", "stride"},
        ),
        (
            nn.Conv2d(16, 32, 5, padding=2, stride=2),
            (2, 16, 12, 12),
            {"small", "depthwise", "groups", "bottleneck", "stride"},
        ),
        (nn.Conv2d(6, 8, 5), (2, 6, 12, 12), {"depthwise", "stride"}),  # without padding small ones see less
        (nn.Conv2d(16, 16, 3, padding=1), (2, 16, 12, 12), {"depthwise", "groups", "bottleneck", "stride"}),
        (nn.Conv1d(8, 8, 9, padding=4), (2, 8, 64), {"small", "depthwise", "groups", "stride"}),
    ],
)
def test_other_layers_are_timed_in_its_place(layer: nn.Module, shape: tuple[int, ...], ways: set[str]) -> None:
    (found,) = convolutions.timings(*seen(layer, *shape))
    assert found["input_shape"] == list(shape)
    assert found["weight_shape"] == list(layer.weight.shape)
    assert {name for name, _ in found["ways"]} == ways
    assert found["now_ms"] > 0 and all(took > 0 for _, took in found["ways"])


@pytest.mark.parametrize(
    "layer",
    [
        nn.ConvTranspose2d(16, 16, 3),
        nn.Conv2d(16, 16, 3, dilation=2),
        nn.Conv2d(16, 16, 3, groups=16),
        nn.Conv2d(16, 16, 1),
        nn.Conv2d(16, 16, 3).double(),
    ],
)
def test_what_is_no_plain_convolution_is_left_alone(layer: nn.Module) -> None:
    network = nn.Sequential(layer) if layer.weight.dtype == torch.float32 else _Double(layer)
    assert convolutions.timings(*seen(network, 2, 16, 12, 12)) == []


class _Double(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.double())


def test_one_among_many_is_left_alone() -> None:
    alike = nn.Sequential(*(nn.Conv2d(16 + number, 17 + number, 3, padding=1) for number in range(12)))
    assert convolutions.timings(*seen(alike, 2, 16, 12, 12)) == []


def test_layers_in_its_place_give_as_many_values() -> None:
    made = convolutions._Made([2, 16, 13, 13], [32, 16, 7, 7], [2, 2], [3, 3], torch.float32)

    def side(layers: list[Any]) -> int:
        found = torch.ones(2, 16, 13, 13)
        for shape, stride, padding, groups in layers:
            found = nn.functional.conv2d(found, torch.ones(shape), None, stride, padding, groups=groups)
        assert found.shape[1] == 32
        return found.shape[-1]

    now = side(made.as_it_is())
    assert {name: side(layers) for name, layers in made.ways().items() if name != "stride"} == dict.fromkeys(
        ("small", "depthwise", "groups", "bottleneck"), now
    )
