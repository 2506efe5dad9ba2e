# /// clinic
# stratum = "decoys"
# resembles = ["PD19"]
# domain = "image restoration"
# ///
"""Trains an image denoiser on two ranks with DistributedDataParallel."""

import json
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WORLD = 2
SIZE = 40
WIDTH = 32
BATCH = 8
STEPS = 300
WARMUP = 20


class Cleaner(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [nn.Conv2d(1, WIDTH, 3, padding=1), nn.ReLU()]
        for _ in range(4):
            layers += [nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.Conv2d(WIDTH, 1, 3, padding=1))

    def forward(self, x):
        return x - self.net(x)


def pictures(gen):
    axis = torch.linspace(-1, 1, SIZE)
    while True:
        angle, freq = torch.rand(2, BATCH, 1, 1, 1, generator=gen)
        ramp = torch.cos(angle * 6.28) * axis[:, None] + torch.sin(angle * 6.28) * axis[None, :]
        clean = torch.sin(ramp * (3 + 9 * freq))
        yield clean, clean + 0.3 * torch.randn(clean.shape, generator=gen)


def worker(rank, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(Cleaner())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    stream = pictures(torch.Generator().manual_seed(rank))
    log = open(os.path.join(folder, "train.jsonl"), "w") if rank == 0 else None
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        clean, noisy = next(stream)
        loss = F.mse_loss(model(noisy), clean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shared = loss.detach().clone()
        dist.all_reduce(shared)
        if rank == 0:
            log.write(json.dumps({"step": step, "loss": shared.item() / WORLD}) + "\n")
        dist.barrier()
    if rank == 0:
        rate = (STEPS - WARMUP) * BATCH * WORLD / (time.perf_counter() - start)
        log.close()
        print(f"{rate:.1f} samples/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(port, folder), nprocs=WORLD)
