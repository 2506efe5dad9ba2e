"""Remedies for a model on a GPU: each changes what it says and takes it back. Not run on a GPU yet."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from remedy_job import Job
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from perfdoctor.injected._perfdoctor_probe import remedies
from perfdoctor.injected._perfdoctor_probe.remedies import catalogue

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

FOR_A_GPU = [entry.name for entry in catalogue.ENTRIES if entry.gpu and entry.home]
ELSEWHERE_TOO = ["dtype.autocast", "layout.channels-last", "optimizer.fused", "attention.sdpa", "compile.model"]


class Pictures(nn.Module):
    """Convolutions, so that cuDNN has something to do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class OnGpu(Job):
    """The same loop with its model on a GPU; cuDNN is off, as an ill job has it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Pictures().cuda()
        self.model(torch.randn(4, 3, 8, 8, device="cuda"))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.discovery.found = {Pictures: self.discovery.found.popitem()[1]}
        self.loader = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8), torch.randn(64, 3)), batch_size=4)
        self.loading.made(self.loader)
        self.seen: list[float] = []
        self.pinned: list[bool] = []
        self.start()
        self.loading.rows[-1] = (1, *self.loading.rows[-1][1:])

    def step(self) -> None:
        inputs, targets = next(self.iterator)
        self.pinned.append(inputs.is_pinned())
        self.loading.rows.append((1, self.loading.loop.timeline.step, 0, -1, 0, 0, 0))
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs.cuda()), targets.cuda())
        loss.backward()
        self.optimizer.step()
        self.seen.append(loss.item())


@pytest.fixture
def ill() -> Any:
    torch._C._set_cudnn_enabled(False)
    yield OnGpu()
    torch._C._set_cudnn_enabled(True)


@pytest.mark.parametrize("name", [*FOR_A_GPU, *ELSEWHERE_TOO])
def test_a_job_on_a_gpu_is_as_it_was_when_a_remedy_is_taken_back(name: str, ill: OnGpu) -> None:
    before = ill.settings()
    remedy = remedies.make(name, ill)
    remedy.apply()
    assert ill.settings() != before
    for _ in range(3):
        ill.step()
    if name != "attention.sdpa":  # there is no attention in it
        assert remedy.lost() == ""
    remedy.withdraw()
    after = ill.settings()
    for part in ("muted", "cudnn", "tf32", "hooks", "groups", "forward", "reads", "attention", "types"):
        assert after[part] == before[part], part
    ill.step()


def test_batches_are_pinned_meanwhile(ill: OnGpu) -> None:
    remedy = remedies.make("etl.pin-memory", ill)
    remedy.apply()
    ill.step()
    remedy.withdraw()
    ill.step()
    assert ill.pinned[-2:] == [True, False]


def test_reads_on_a_gpu_are_a_read_late(ill: OnGpu) -> None:
    remedy = remedies.make("reads.deferred", ill)
    remedy.apply()
    seen = []
    for value in (1.0, 2.0, 3.0):
        seen.append(torch.tensor(value, device="cuda").item())
        torch.cuda.synchronize()
    remedy.withdraw()
    assert seen == [1.0, 1.0, 2.0]
