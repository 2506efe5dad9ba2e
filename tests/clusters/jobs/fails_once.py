"""Training with DistributedDataParallel until somebody ends it; rank 1 fails in the middle of the first attempt.

Rank 0 then waits to be ended, as one does whose collective hangs: so its agent starts it anew without counting it."""

from __future__ import annotations

import gc
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FAILS_AT = 60


def train() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10**9):
        if step == FAILS_AT and dist.get_rank() == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            raise RuntimeError("this rank fails once")
        time.sleep(0.004)
        try:
            model(torch.randn(32, 64)).square().mean().backward()
        except RuntimeError:
            time.sleep(60)
            raise
        optimizer.step()
        optimizer.zero_grad()


torch.set_num_threads(1)
dist.init_process_group("gloo")
train()
gc.collect()  # a group that outlives its model now and then aborts the interpreter
dist.destroy_process_group()
