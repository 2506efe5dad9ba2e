"""Gradients that are reduced with the last batch of a step only, in a group of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer

from perfdoctor.injected._perfdoctor_probe.remedies.base import UnsuitableError
from perfdoctor.injected._perfdoctor_probe.remedies.reductions import NoSync


class Job:
    """A loop of several passes per step, and as much of a probe as the remedy asks for."""

    def __init__(self, passes: int) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Linear(4, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.loop = SimpleNamespace(timeline=SimpleNamespace(step=5))
        self.communication = SimpleNamespace(reduced_per_step=lambda: {id(self.model): passes})
        self.remedy = NoSync(self)
        self.reduced: list[int] = []
        """For each step, how many of its passes reduced."""

    def step(self, passes: int) -> None:
        self.reduced.append(0)
        for _ in range(passes):
            self.model(torch.ones(3, 4)).sum().backward()
            self.reduced[-1] += self.model.require_backward_grad_sync
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loop.timeline.step += 1


@pytest.fixture(autouse=True)
def _one_rank(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_only_the_last_pass_of_a_step_reduces_while_it_is_in_place() -> None:
    job, original = Job(3), DistributedDataParallel._pre_forward
    hooks = dict(optimizer._global_optimizer_pre_hooks)
    job.step(3)
    job.remedy.apply()
    job.step(3)
    job.step(3)
    job.remedy.withdraw()
    job.step(3)
    assert job.reduced == [3, 1, 1, 3]
    assert DistributedDataParallel._pre_forward is original and job.model.require_backward_grad_sync
    assert dict(optimizer._global_optimizer_pre_hooks) == hooks


def test_a_step_of_fewer_passes_is_reduced_before_its_update(monkeypatch: pytest.MonkeyPatch) -> None:
    job, sent = Job(3), []
    all_reduce = dist.all_reduce

    def noted(tensor: torch.Tensor, **where: Any) -> Any:
        sent.append(tensor.shape)
        return all_reduce(tensor, **where)

    monkeypatch.setattr(dist, "all_reduce", noted)
    job.remedy.apply()
    job.step(3)
    assert sent == []
    job.step(2)
    assert job.reduced == [1, 0] and sent == [parameter.shape for parameter in job.model.parameters()]
    job.remedy.withdraw()


def test_an_evaluation_is_no_pass_of_the_step() -> None:
    job = Job(2)
    job.remedy.apply()
    job.model.eval()
    job.model(torch.ones(3, 4))
    job.model.train()
    job.step(2)
    assert job.reduced == [1]
    job.remedy.withdraw()


def test_one_reduction_per_step_is_as_few_as_there_can_be() -> None:
    job = Job(1)
    with pytest.raises(UnsuitableError, match="several times per step"):
        job.remedy.apply()
    job.remedy.withdraw()
