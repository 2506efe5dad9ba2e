"""Operators on images, timed with their channels first and last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile

from perfdoctor.injected._perfdoctor_probe.microbenchmarks import layout
from perfdoctor.injected._perfdoctor_probe.windows import operators

FIRST = [{"channels_last": False, "dtype": "float32", "kernel": "mkldnn_convolution"}]
NETWORK = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1),
    nn.BatchNorm2d(8),
    nn.MaxPool2d(2),
    nn.ConvTranspose2d(8, 8, 2, stride=2),
    nn.GroupNorm(2, 8),
    nn.AvgPool2d(2),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.Upsample(scale_factor=2),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(32, 1),
)


@pytest.fixture(scope="module")
def seen() -> tuple[list[Any], list[Any]]:
    """Operators of one step and their arguments, as the operator window has them."""
    with profile(record_shapes=True) as step:
        NETWORK(torch.randn(2, 3, 16, 16)).sum().backward()
    host, device = operators.divided(step.kineto_results.events(), False)
    summary, arguments = operators.summarise(host, device, 1)
    return summary["ops"], arguments


def test_every_operator_on_images_has_a_timing_both_ways(seen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_TIMED", 100)
    monkeypatch.setattr(layout, "_LEAST_PART", 0.0)
    monkeypatch.setattr(layout, "_LIMIT_NS", 1 << 60)
    found = layout.timings(*seen, FIRST)
    assert all(row["first_ms"] > 0 and row["last_ms"] > 0 and row["ms_per_step"] > 0 for row in found)
    assert {row["name"] for row in found} == {
        *("convolution", "convolution_backward", "native_batch_norm", "native_batch_norm_backward"),
        *("max_pool2d_with_indices", "max_pool2d_with_indices_backward", "native_group_norm"),
        *("native_group_norm_backward", "avg_pool2d", "avg_pool2d_backward", "_adaptive_avg_pool2d"),
        *("_adaptive_avg_pool2d_backward", "upsample_bilinear2d", "upsample_bilinear2d_backward"),
        *("upsample_nearest2d", "upsample_nearest2d_backward"),
    }


@pytest.mark.parametrize(
    "row", [{"channels_last": True}, {"channels_last": None}, {"dtype": "float64"}, {"kernel": "thnn_conv2d"}]
)
def test_a_job_whose_convolutions_are_otherwise_is_not_asked(seen: Any, row: dict[str, Any]) -> None:
    assert layout.timings(*seen, [{**FIRST[0], **row}]) == []


def test_tensors_are_laid_out_as_asked() -> None:
    shapes, types = [[2, 3, 8, 8], [3]], ["float", "float"]
    for last in (False, True):
        call = layout.replay.prepared("aten::mul", shapes, types, [None, None], last=last)
        images, scale = call.args
        assert images.is_contiguous(memory_format=torch.channels_last) is last and scale.is_contiguous()
