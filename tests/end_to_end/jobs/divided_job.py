"""Ranks over gloo that divide a model: `divided_job.py KIND STEPS`.

Kinds: `shards`, a stack of layers that `fully_shard` gathers each on its own; `whole`, the same as one; `tensor`, each
layer in two parts, and two such pairs on four ranks; `stages`, a pipeline whose last stage has most to do.
"""

import gc
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


def data():
    torch.manual_seed(dist.get_rank())
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def train(model) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = data()
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def shards() -> None:
    model = layers()
    if KIND == "shards":
        for layer in model:
            fully_shard(layer)
    fully_shard(model, reshard_after_forward=KIND == "shards")
    train(model)


def tensor() -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = layers(8)
    plan = {f"{i}.0": (ColwiseParallel, RowwiseParallel)[i % 2]() for i in range(8)}
    parallelize_module(model, mesh["tp"], plan)
    if dist.get_world_size() > 2:
        fully_shard(model, mesh=mesh["dp"])
    torch.manual_seed(0)
    train(model)


def stages() -> None:
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = layers(24 if rank + 1 == ranks else 4, WIDTH)
    stage = PipelineStage(model, rank, ranks, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        x, y = data()
        optimizer.zero_grad()
        if rank == 0:
            schedule.step(x)
        elif rank + 1 == ranks:
            schedule.step(target=y)
        else:
            schedule.step()
        optimizer.step()


dist.init_process_group("gloo")
{"shards": shards, "whole": shards, "tensor": tensor, "stages": stages}[KIND]()
os.write(1, f"done {dist.get_rank()}\n".encode())
gc.collect()
dist.destroy_process_group()
