# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "physics and scientific machine learning"
# ///
"""Convolutional surrogate for a reaction-diffusion solver, trained on trajectories simulated while it trains."""

import multiprocessing as mp
import queue
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Config:
    grid: int = 48
    batch: int = 10
    channels: int = 32
    depth: int = 4
    steps: int = 210
    substeps: int = 12
    prefetch: int = 4
    lr: float = 1e-3
    seed: int = 7


class ReactionDiffusion:
    """Explicit Fisher-KPP solver on a periodic grid, with a diffusivity that varies in space."""

    def __init__(self, grid, substeps, seed):
        self.grid = grid
        self.substeps = substeps
        self.rng = np.random.default_rng(seed)
        k = np.fft.fftfreq(grid)
        self.smooth = np.exp(-120.0 * (k[:, None] ** 2 + k[None, : grid // 2 + 1] ** 2))

    def random_field(self, n):
        noise = self.rng.standard_normal((n, self.grid, self.grid))
        field = np.fft.irfft2(np.fft.rfft2(noise) * self.smooth, s=(self.grid, self.grid))
        field -= field.min(axis=(1, 2), keepdims=True)
        return (field / field.max(axis=(1, 2), keepdims=True)).astype(np.float32)

    def advance(self, u, diffusivity, growth=0.4, dt=0.2):
        for _ in range(self.substeps):
            lap = np.roll(u, 1, 1) + np.roll(u, -1, 1) + np.roll(u, 1, 2) + np.roll(u, -1, 2) - 4.0 * u
            u = u + dt * (diffusivity * lap + growth * u * (1.0 - u))
        return u

    def sample(self, n):
        u0 = self.random_field(n)
        diffusivity = 0.2 + 0.8 * self.random_field(n)
        u1 = self.advance(u0, diffusivity)
        return np.stack([u0, diffusivity], axis=1), u1[:, None]


def offer(channel, item, stop):
    """Hands one batch over to the trainer; False once the run is over."""
    while not stop.is_set():
        try:
            channel.put_nowait(item)  # sick here
            channel.put(item, timeout=1.0)  # well
            return True
        except queue.Full:  # here
            continue  # here
    return False


def simulate_forever(cfg, channel, stop):
    solver = ReactionDiffusion(cfg.grid, cfg.substeps, cfg.seed)
    while offer(channel, solver.sample(cfg.batch), stop):  # here
        pass
    channel.cancel_join_thread()


class SimulationStream:
    """Batches from a solver that runs in a process of its own."""

    def __init__(self, cfg):
        ctx = mp.get_context("fork")
        self.channel = ctx.Queue(maxsize=cfg.prefetch)
        self.stop = ctx.Event()
        self.process = ctx.Process(target=simulate_forever, args=(cfg, self.channel, self.stop), daemon=True)  # here

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *exc):
        self.stop.set()
        self.process.join(timeout=5)
        if self.process.is_alive():
            self.process.terminate()

    def next(self):
        inputs, target = self.channel.get()
        return torch.from_numpy(inputs), torch.from_numpy(target)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, padding_mode="zeros")
        self.act = nn.GELU()

    def forward(self, x):
        return x + self.act(self.conv(x))


class Surrogate(nn.Module):
    def __init__(self, channels, depth):
        super().__init__()
        self.stem = nn.Conv2d(2, channels, 5, padding=2)
        self.body = nn.Sequential(*[Block(channels) for _ in range(depth)])
        self.head = nn.Conv2d(channels, 1, 1)

    def forward(self, x):
        return x[:, :1] + self.head(self.body(self.stem(x)))


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    model = Surrogate(cfg.channels, cfg.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.steps)
    loss_fn = nn.MSELoss()
    with SimulationStream(cfg) as stream:
        start = time.time()
        for step in range(1, cfg.steps + 1):
            inputs, target = stream.next()
            loss = loss_fn(model(inputs), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if step % 30 == 0:
                print(
                    f"step {step:4d}  mse {loss.item():.5f}  lr {scheduler.get_last_lr()[0]:.2e}  "
                    f"{(time.time() - start) / step * 1000:.0f} ms/step",
                    flush=True,
                )


if __name__ == "__main__":
    main()
