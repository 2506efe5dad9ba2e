# /// clinic
# stratum = "decoys"
# resembles = ["PD19"]
# domain = "audio"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# ///
"""Siren detection in street noise, data parallel over two processes; mixtures are made fresh for each batch."""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

BATCH, LENGTH, STEPS, WARM = 16, 4096, 150, 8


class Street(IterableDataset):
    """Coloured noise, half of the clips with a sweep in them; whole batches, random for ever."""

    def __init__(self, rank):
        self.rng = np.random.default_rng(100 + rank)
        self.tilt = 1.0 / np.sqrt(1.0 + np.arange(LENGTH // 2 + 1))
        self.t = np.arange(LENGTH) / 8000.0
        self.window = np.hanning(256).astype(np.float32)

    def __iter__(self):
        while True:
            noise = np.fft.irfft(np.fft.rfft(self.rng.standard_normal((BATCH, LENGTH))) * self.tilt, LENGTH)
            label = self.rng.random(BATCH) < 0.5
            f0 = self.rng.uniform(400, 900, (BATCH, 1))
            rate = self.rng.uniform(0.5, 4.0, (BATCH, 1))
            phase = 2 * np.pi * f0 * self.t - 80.0 * np.cos(2 * np.pi * rate * self.t)
            wave = (noise / noise.std(1, keepdims=True) + label[:, None] * 0.6 * np.sin(phase)).astype(np.float32)
            frames = np.lib.stride_tricks.sliding_window_view(wave, 256, axis=1)[:, ::64] * self.window
            power = np.log(np.abs(np.fft.rfft(frames))[:, :, :64] + 1e-3)
            yield torch.from_numpy(power.astype(np.float32)), torch.from_numpy(label.astype(np.float32))


def model():
    w = 24
    return nn.Sequential(
        nn.Unflatten(1, (1, -1)),
        nn.Conv2d(1, w, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(w, 2 * w, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * w, 2 * w, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * w, 1),
        nn.Flatten(0),
    )


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    workers = int(os.environ.get("LOADER_WORKERS", "0"))
    batches = iter(DataLoader(Street(rank), batch_size=None, num_workers=workers))
    net = DistributedDataParallel(model())
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(STEPS):
        if step == WARM:
            start = time.perf_counter()
        x, y = next(batches)
        loss = nn.functional.binary_cross_entropy_with_logits(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 50 == 49:
            print(f"step {step + 1} loss {loss.item():.3f}", flush=True)
    took = time.perf_counter() - start
    dist.barrier()
    if rank == 0:
        print(f"{(STEPS - WARM) * BATCH * dist.get_world_size() / took:.1f} clips/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
