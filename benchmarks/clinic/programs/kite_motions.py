# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "weather kites"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Self-supervised pre-training on the motion logs of weather kites.

Two views of the same half minute of a flight (turned about the line, stretched in time, with other gusts on top) shall get
the same embedding (VICReg). A ridge probe for the wind force class tells how far it has come.

    torchrun --nproc-per-node 2 kite_motions.py
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from scipy.ndimage import median_filter
from scipy.signal import detrend, lfilter
from torch import nn
from torch.utils.data import DataLoader, Dataset

CHANNELS = ("ax", "ay", "az", "gx", "gy", "gz", "tension", "vane")


@dataclass
class Config:
    flights: int = 20
    flight_length: int = 24_000
    window: int = 512
    windows: int = 3_840
    batch: int = 16
    epochs: int = 2
    width: int = 32
    embed: int = 64
    expand: int = 192
    lr: float = 8e-4
    probe_windows: int = 192
    seed: int = 17


def fly(config, rng):
    """Loggers of box kites at 20 Hz: figure-of-eight swing, line tension, gusts that grow with the wind force."""
    logs, force = [], rng.integers(2, 7, config.flights)
    t = np.arange(config.flight_length, dtype=np.float32) / 20
    for wind in force:
        swing = 0.25 + 0.06 * wind + 0.03 * rng.standard_normal()
        base = np.stack([np.sin(2 * np.pi * swing * (1 + k % 2) * t + rng.uniform(0, 6)) for k in range(len(CHANNELS))])
        gusts = lfilter([0.05 * wind], [1, -0.97], rng.standard_normal(base.shape), axis=1)
        logs.append((base + gusts + 0.1 * rng.standard_normal(base.shape)).astype(np.float32))
    return logs, force


class FlightWindows(Dataset):
    """Each item is a window of some flight, seen twice."""

    def __init__(self, logs, force, config):
        self.logs, self.force, self.config = logs, force, config
        self.rng = np.random.default_rng()

    def __len__(self):
        return self.config.windows

    def turned(self, x):
        a, b, c = self.rng.uniform(-0.4, 0.4, 3)
        about_z = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]])
        about_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
        about_x = np.array([[1, 0, 0], [0, np.cos(c), -np.sin(c)], [0, np.sin(c), np.cos(c)]])
        turn = about_z @ about_y @ about_x
        return np.concatenate([turn @ x[:3], turn @ x[3:6], x[6:]])

    def view(self, x):
        length = self.config.window
        pace = np.cumsum(np.exp(0.2 * self.rng.standard_normal(9)))
        knots = np.linspace(0, x.shape[1] - 1, 10)
        warped = np.interp(np.linspace(0, pace[-1], length), np.concatenate([[0.0], pace]), knots)
        x = np.stack([np.interp(warped, np.arange(x.shape[1]), channel) for channel in x])
        x = self.turned(median_filter(x, size=(1, 3)))
        x = detrend(x, axis=1)
        gust = lfilter([0.15], [1, -0.9], self.rng.standard_normal(x.shape), axis=1)
        return torch.from_numpy(((x + gust) / (x.std(axis=1, keepdims=True) + 1e-3)).astype(np.float32))

    def __getitem__(self, index):
        flight = index % len(self.logs)
        start = self.rng.integers(0, self.config.flight_length - 2 * self.config.window)
        x = self.logs[flight][:, start : start + int(1.25 * self.config.window)]
        return {"one": self.view(x), "other": self.view(x), "force": int(self.force[flight])}


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        w = config.width
        sizes = [(len(CHANNELS), w, 7), (w, 2 * w, 5), (2 * w, 3 * w, 5), (3 * w, 4 * w, 3)]
        layers = []
        for a, b, k in sizes:
            layers += [nn.Conv1d(a, b, k, stride=2, padding=k // 2), nn.GroupNorm(8, b), nn.GELU()]
        self.body = nn.Sequential(*layers)
        self.embed = nn.Linear(4 * w, config.embed)
        self.expand = nn.Sequential(
            nn.Linear(config.embed, config.expand), nn.ReLU(), nn.Linear(config.expand, config.expand)
        )

    def forward(self, x):
        y = self.embed(self.body(x).mean(-1))
        return y, self.expand(y)


def vicreg(a, b):
    same = F.mse_loss(a, b)
    spread = sum(F.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() for z in (a, b))
    mixed = 0.0
    for z in (a, b):
        z = z - z.mean(0)
        cov = z.T @ z / (len(z) - 1)
        mixed = mixed + (cov.square().sum() - cov.diagonal().square().sum()) / z.shape[1]
    return 25 * same + 12.5 * spread + mixed


@torch.no_grad()
def probe(accelerator, model, one, force):
    """Ridge regression from the embeddings of the first half, error on the second."""
    y, _ = accelerator.unwrap_model(model)(one)
    y = torch.cat([y, torch.ones(len(y), 1)], dim=1)
    half = len(y) // 2
    gram = y[:half].T @ y[:half] + 0.1 * torch.eye(y.shape[1])
    weights = torch.linalg.solve(gram, y[:half].T @ force[:half])
    return (y[half:] @ weights - force[half:]).abs().mean().item()


def main():
    config = Config()
    loading = DataLoaderConfiguration(dispatch_batches=True)  # sick here
    loading = DataLoaderConfiguration()  # well
    accelerator = Accelerator(cpu=True, dataloader_config=loading)
    set_seed(config.seed)
    logs, force = fly(config, np.random.default_rng(config.seed))
    windows = FlightWindows(logs, force, config)
    held = [windows[i] for i in range(config.probe_windows)]
    held_one, held_force = torch.stack([h["one"] for h in held]), torch.tensor([float(h["force"]) for h in held])

    model = Encoder(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr, weight_decay=1e-4)
    loader = DataLoader(windows, batch_size=config.batch, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    accelerator.print(f"{accelerator.num_processes} processes, {len(loader)} steps an epoch")

    seen, began = 0, time.perf_counter()
    for epoch in range(config.epochs):
        total = 0.0
        for batch in loader:
            _, z = model(torch.cat([batch["one"], batch["other"]]))
            loss = vicreg(*z.chunk(2))
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
            seen += len(batch["one"]) * accelerator.num_processes
        error = probe(accelerator, model, held_one, held_force)
        accelerator.print(f"epoch {epoch}: loss {total / len(loader):.2f}, wind force off by {error:.2f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.end_training()
    accelerator.print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
