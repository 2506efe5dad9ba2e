# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "physics surrogate (fluid flow)"
# ///
"""Trains a deep residual surrogate of a flow solver on two data-parallel workers."""

import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 2
INPUTS, OUTPUTS = 8, 6
WIDTH = 128
DEPTH = 16
BATCH = 256
STEPS = 400
WARMUP = 20


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, WIDTH)
        self.down = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(self.norm(x))))


def build():
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), *[Residual() for _ in range(DEPTH)], nn.Linear(WIDTH, OUTPUTS))


def solver(points):
    a, b = points[:, :OUTPUTS], points[:, 2 : 2 + OUTPUTS]
    return torch.sin(a * 2) * torch.exp(-(b**2)) + 0.1 * a * b


def average_gradients(model):
    for p in model.parameters():  # sick
        dist.all_reduce(p.grad)  # sick here
        p.grad.div_(WORLD)  # sick
    grads = [p.grad for p in model.parameters()]  # well
    flat = torch.cat([g.flatten() for g in grads])  # well
    dist.all_reduce(flat)  # well
    flat.div_(WORLD)  # well
    pieces = flat.split([g.numel() for g in grads])  # well
    torch._foreach_copy_(grads, [s.view_as(g) for s, g in zip(pieces, grads)])  # well


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    gen = torch.Generator().manual_seed(100 + rank)
    for step in range(STEPS):
        if step == WARMUP:
            dist.barrier()
            start = time.perf_counter()
        points = torch.rand(BATCH, INPUTS, generator=gen) * 2 - 1
        loss = nn.functional.mse_loss(model(points), solver(points))
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
    if rank == 0:
        rate = (STEPS - WARMUP) / (time.perf_counter() - start)
        print(f"{rate:.1f} steps/s", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(free_port(),), nprocs=WORLD)
