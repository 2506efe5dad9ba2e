"""Ranks over gloo that divide a model: `divided_job.py KIND STEPS`. Prints what becomes of each rank's part.

Kinds: `shards`, a stack of layers that `fully_shard` gathers each on its own; `whole`, the same as one; `tensor`, each
layer in two parts, and two such pairs on four ranks; `stages`, a pipeline whose last stage has most to do.
"""

import gc
import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

KIND, STEPS = sys.argv[1], int(sys.argv[2])
WIDTH, LAYERS, BATCH = 64, 16, 32


def layers(count: int = LAYERS, width: int = WIDTH) -> nn.Sequential:
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count)])


def data(seed: int):
    torch.manual_seed(seed)
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def digest(model) -> str:
    parts = [getattr(one, "to_local", lambda one=one: one)() for one in model.parameters()]
    return hashlib.sha256(b"".join(part.detach().numpy().tobytes() for part in parts)).hexdigest()[:16]


def train(model, part: int) -> str:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = data(step * 100 + part)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return digest(model)


def shards() -> str:
    model = layers()
    if KIND == "shards":
        for layer in model:
            fully_shard(layer)
    fully_shard(model, reshard_after_forward=KIND == "shards")
    return train(model, dist.get_rank())


def tensor() -> str:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = layers(8)
    plan = {f"{i}.0": (ColwiseParallel, RowwiseParallel)[i % 2]() for i in range(8)}
    parallelize_module(model, mesh["tp"], plan)
    if dist.get_world_size() > 2:
        fully_shard(model, mesh=mesh["dp"])
    return train(model, dist.get_rank() // 2)


def stages() -> str:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = layers(24 if rank + 1 == ranks else 4, WIDTH)
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = data(step)
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank + 1 == ranks:
            schedule.step(target=y)
        else:
            schedule.step()
        optimizer.step()
    return digest(model)


torch.manual_seed(7)
dist.init_process_group("gloo")
result = {"shards": shards, "whole": shards, "tensor": tensor, "stages": stages}[KIND]()
# One write: all ranks share the stream.
os.write(1, f"done {dist.get_rank()} {result}\n".encode())
gc.collect()
dist.destroy_process_group()
