# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "raft races"
# ///
"""MMD-VAE of raft race telemetry.

Windows of the loggers that the crews carry (speed, heading rate, roll, pitch, heave, paddle rate), 128 samples each.
The latent space is used to compare runs of the same rapid. InfoVAE objective: reconstruction + MMD to the prior.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Settings:
    runs: int = 90
    window: int = 128
    hop: int = 32
    channels: int = 6
    latent: int = 48
    width: int = 32
    batch: int = 160
    epochs: int = 44
    lr: float = 1e-3
    mmd_weight: float = 20.0
    seed: int = 5


def simulate_run(rng, samples):
    """One run down the course: calm pools and rapids in turn, paddling harder in the pools."""
    t = np.arange(samples) / 10.0
    rapid = np.clip(np.sin(2 * np.pi * t / rng.uniform(25, 60) + rng.uniform(0, 6)), 0, 1)
    speed = 1.5 + 2.5 * rapid + rng.normal(0, 0.3)
    turn = rapid * np.sin(2 * np.pi * t / rng.uniform(3, 6)) * rng.uniform(0.5, 1.5)
    roll = rapid * np.sin(2 * np.pi * t * rng.uniform(0.6, 1.2))
    pitch = rapid * np.cos(2 * np.pi * t * rng.uniform(0.4, 0.9))
    heave = np.gradient(pitch)
    paddle = (1 - 0.7 * rapid) * (np.sin(2 * np.pi * t * rng.uniform(0.7, 1.1)) > 0)
    run = np.stack([speed, turn, roll, pitch, heave, paddle])
    return run + rng.normal(0, 0.05, run.shape)


def load_windows(cfg):
    rng = np.random.default_rng(cfg.seed)
    parts = []
    for _ in range(cfg.runs):
        run = torch.tensor(simulate_run(rng, 1300), dtype=torch.float32)
        parts.append(run.unfold(1, cfg.window, cfg.hop).transpose(0, 1))
    windows = torch.cat(parts).contiguous()
    windows = (windows - windows.mean((0, 2), keepdim=True)) / windows.std((0, 2), keepdim=True)
    held_out = len(parts[0]) * 8
    return windows[:-held_out], windows[-held_out:]


def compute_kernel(x, y):
    n, m, dim = x.size(0), y.size(0), x.size(1)
    x = x.unsqueeze(1)  # sick
    y = y.unsqueeze(0)  # sick
    tiled_x = x.expand(n, m, dim)  # sick
    tiled_y = y.expand(n, m, dim)  # sick
    distance = (tiled_x - tiled_y).pow(2).sum(2)  # sick here
    squares_x = x.pow(2).sum(1).view(n, 1)  # well
    squares_y = y.pow(2).sum(1).view(1, m)  # well
    distance = (squares_x + squares_y - 2 * x @ y.t()).clamp(min=0)  # well
    return torch.exp(-distance / dim / 2.0)


def compute_mmd(x, y):
    return compute_kernel(x, x).mean() + compute_kernel(y, y).mean() - 2 * compute_kernel(x, y).mean()


class TelemetryVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        c, w, flat = cfg.channels, cfg.width, cfg.width * 2 * cfg.window // 8
        self.encoder = nn.Sequential(
            nn.Conv1d(c, w, 5, stride=2, padding=2),
            nn.LeakyReLU(0.1),
            nn.Conv1d(w, w * 2, 5, stride=2, padding=2),
            nn.LeakyReLU(0.1),
            nn.Conv1d(w * 2, w * 2, 5, stride=2, padding=2),
            nn.LeakyReLU(0.1),
            nn.Flatten(),
            nn.Linear(flat, cfg.latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent, flat),
            nn.LeakyReLU(0.1),
            nn.Unflatten(1, (w * 2, cfg.window // 8)),
            nn.ConvTranspose1d(w * 2, w * 2, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(w * 2, w, 4, stride=2, padding=1),
            nn.LeakyReLU(0.1),
            nn.ConvTranspose1d(w, c, 4, stride=2, padding=1),
        )

    def forward(self, x):
        z = self.encoder(x)
        return self.decoder(z), z


class Trainer:
    def __init__(self, cfg, folder="runs"):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.train_x, self.val_x = load_windows(cfg)
        self.model = TelemetryVAE(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        (self.folder / "settings.json").write_text(json.dumps(asdict(cfg)))
        self.best = float("inf")

    def loss(self, x):
        reconstruction, z = self.model(x)
        prior = torch.randn(len(z), self.cfg.latent)
        mmd = compute_mmd(prior, z)
        nll = F.mse_loss(reconstruction, x)
        return nll + self.cfg.mmd_weight * mmd, nll, mmd

    def train_epoch(self):
        self.model.train()
        order = torch.randperm(len(self.train_x))
        sums = torch.zeros(2)
        steps = len(order) // self.cfg.batch
        for step in range(steps):
            x = self.train_x[order[step * self.cfg.batch : (step + 1) * self.cfg.batch]]
            loss, nll, mmd = self.loss(x)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            sums += torch.stack([nll.detach(), mmd.detach()])
        return (sums / steps).tolist(), steps * self.cfg.batch

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        nll = sum(F.mse_loss(self.model(x)[0], x, reduction="sum").item() for x in self.val_x.split(self.cfg.batch))
        nll /= self.val_x.numel()
        if nll < self.best:
            self.best = nll
            torch.save(self.model.state_dict(), self.folder / "best.pt")
        return nll

    def fit(self):
        seen = 0
        began = time.perf_counter()
        for epoch in range(1, self.cfg.epochs + 1):
            (nll, mmd), count = self.train_epoch()
            seen += count
            val = self.validate()
            if epoch % 2 == 0:
                print(f"epoch {epoch:3d}  nll {nll:.4f}  mmd {mmd:.5f}  val nll {val:.4f}")
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    trainer = Trainer(Settings())
    print(f"{len(trainer.train_x)} windows for training, {len(trainer.val_x)} held out")
    rate = trainer.fit()
    print(f"{rate:.1f} windows/s")
