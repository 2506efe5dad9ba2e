"""Training with DistributedDataParallel until somebody ends it: `endless.py [MS] [STEPS] [CODE]`.

MS is what a step waits, STEPS how many there are, CODE what every rank exits with after the last. Ranks are told by
torchrun's variables, Open MPI's or Slurm's; INIT_METHOD says where they meet if not at MASTER_ADDR.
"""

from __future__ import annotations

import gc
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MS = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
STEPS = int(sys.argv[2]) if len(sys.argv) > 2 else 10**9
CODE = int(sys.argv[3]) if len(sys.argv) > 3 else 0


def train() -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        time.sleep(MS / 1000)
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    total = sum(parameter.sum().item() for parameter in model.parameters())
    print(f"rank {dist.get_rank()}: {total:.6f}", flush=True)


torch.set_num_threads(1)
NAMES = [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
rank, world = next([int(os.environ[name]) for name in names] for names in NAMES if names[0] in os.environ)
dist.init_process_group("gloo", os.environ.get("INIT_METHOD", "env://"), rank=rank, world_size=world)
train()
gc.collect()  # a group that outlives its model now and then aborts the interpreter
dist.destroy_process_group()
sys.exit(CODE)
