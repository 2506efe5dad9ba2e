"""Training with DistributedDataParallel, in which one rank may be late: `ranks.py CASE RANK MS STEPS`.

Cases: `none`; `data`, `forward`, `backward`, `update` and `optimizer` (after its step), in which RANK works MS
milliseconds longer per step; `turns`, in which each rank does so in one step of as many, but the last of more than two;
`gc`, in which RANK collects garbage among many objects in every step;
`neighbour`, a busy process on its CPU; `quota`, RANK in the control group $GROUP; `noise`, up to MS on every rank
by chance; `saves`, rank 0 saves now and then; `norm`, batch norm, whose buffers are sent in every step;
`data+norm`, both; `shards`, four times the samples on RANK.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

CASE, LATE, MS, STEPS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
WIDTH, BATCH, LARGER = 256, 32, 4
OBJECTS = 150_000
BUSY = "import os\nwhile os.getppid() == {parent}:\n    for _ in range(100000): pass"


def work(milliseconds: float) -> None:
    end = time.perf_counter() + milliseconds / 1000
    while time.perf_counter() < end:
        pass


class Samples(Dataset[Any]):
    def __init__(self, mine: bool) -> None:
        self.extra_ms = MS / BATCH if mine and CASE.startswith("data") else 0.0

    def __len__(self) -> int:
        return BATCH * LARGER * (STEPS + 1)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        work(self.extra_ms)
        return torch.full((WIDTH,), float(index % 7)), index % 10


class Extra(torch.autograd.Function):
    """Passes through, and takes its time."""

    mine = False

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
        work(MS if CASE == "forward" and Extra.mine else 0.0)
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        work(MS if CASE == "backward" and Extra.mine else 0.0)
        return gradient


class Updates(torch.optim.SGD):
    """As usual, and takes its time."""

    def step(self, *args: Any, **kwargs: Any) -> Any:
        work(MS if CASE == "update" and Extra.mine else 0.0)
        return super().step(*args, **kwargs)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(8):
            layers += [nn.Linear(WIDTH, WIDTH), *([nn.BatchNorm1d(WIDTH)] if "norm" in CASE else []), nn.ReLU()]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(WIDTH, 10)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.head(Extra.apply(self.body(values)))


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    Extra.mine = mine = rank == LATE
    cpus = sorted(os.sched_getaffinity(0))
    if CASE == "neighbour":
        cpu = cpus[rank % len(cpus)]
        os.sched_setaffinity(0, {cpu})
        if mine:  # it inherits the CPU
            subprocess.Popen([sys.executable, "-S", "-c", BUSY.format(parent=os.getpid())], env={})
    if CASE == "quota" and mine:
        (Path(os.environ["GROUP"]) / "cgroup.procs").write_text(str(os.getpid()))
    model = DistributedDataParallel(Network())
    optimizer = Updates(model.parameters(), lr=0.01)
    objects = [[number] for number in range(OBJECTS if CASE == "gc" and mine else 0)]
    taking = max(2, dist.get_world_size() - 1)
    measure = nn.CrossEntropyLoss()
    batch = BATCH * LARGER if mine and CASE == "shards" else BATCH
    for step, (values, labels) in enumerate(DataLoader(Samples(mine), batch_size=batch)):
        optimizer.zero_grad()
        measure(model(values), labels).backward()
        optimizer.step()
        if (CASE == "optimizer" and mine) or (CASE == "turns" and step % taking == rank):
            work(MS)
        elif objects:
            gc.collect()
        elif CASE == "noise":
            work(random.random() * MS)
        elif CASE == "saves" and rank == 0 and step % 25 == 24:
            torch.save([model.state_dict()] * 10, os.devnull)
            work(MS)
        if step + 1 == STEPS:
            break
    dist.destroy_process_group()


main()
