# /// clinic
# expect = ["PD15.growing-hooks", "PD15.repeated-hooks"]
# stratum = "twins"
# domain = "otter holt tracks"
# ///
"""Holts from otter tracks: a convolutional VAE over windows of GPS tracks.

A window is 128 fixes (east, north, depth, speed) of one otter. The latent code should say whether the animal is at
its holt, foraging, or travelling along the river; a linear probe on the codes is fitted after each epoch.
"""

import json
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

FIXES = 128
CHANNELS = 4
BEHAVIOURS = ("holt", "foraging", "travelling")


def make_tracks(count, rng):
    kind = rng.integers(0, len(BEHAVIOURS), size=count)
    speed = np.array([0.05, 0.4, 1.2])[kind][:, None]
    turning = np.array([1.5, 0.9, 0.15])[kind][:, None]
    heading = np.cumsum(rng.normal(size=(count, FIXES)) * turning, axis=1) + rng.uniform(0, 6.28, size=(count, 1))
    pace = speed * rng.gamma(4.0, 0.25, size=(count, FIXES))
    east = np.cumsum(pace * np.cos(heading), axis=1)
    north = np.cumsum(pace * np.sin(heading), axis=1)
    dives = (rng.random((count, FIXES)) < np.array([0.0, 0.25, 0.05])[kind][:, None]) * rng.gamma(
        2.0, 0.6, size=(count, FIXES)
    )
    stacked = np.stack([east / 20.0, north / 20.0, dives, pace], axis=1)
    stacked[:, :2] += rng.normal(0.0, 0.02, size=(count, 2, FIXES))
    return torch.tensor(stacked, dtype=torch.float32), torch.tensor(kind)


class TrackVAE(nn.Module):
    def __init__(self, width=64, latent=16):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.to_mean = nn.Linear(width * FIXES // 8, latent)
        self.to_logvar = nn.Linear(width * FIXES // 8, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, width * FIXES // 8),
            nn.Unflatten(1, (width, FIXES // 8)),
            nn.SiLU(),
            nn.ConvTranspose1d(width, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose1d(width, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose1d(width, CHANNELS, 4, stride=2, padding=1),
        )

    def forward(self, tracks):
        hidden = self.encoder(tracks)
        mean, logvar = self.to_mean(hidden), self.to_logvar(hidden).clamp(-8, 8)
        code = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.decoder(code), mean, logvar


class ActivationWatch:
    """Keeps an eye on the layers: spread of the outputs and the share that is almost zero."""

    def __init__(self, model):
        self.model = model
        self.table = {}

    def attach(self):
        for name, layer in self.model.named_modules():
            if isinstance(layer, (nn.Conv1d, nn.ConvTranspose1d, nn.Linear)):
                layer.register_forward_hook(self.recorder(name))

    def recorder(self, name):
        def record(layer, inputs, output):
            out = output.detach()
            spread = out.std().item()
            quiet = (out.abs() < 1e-2).float().mean().item()
            self.table[name] = {"spread": spread, "quiet": quiet}

        return record

    def report(self):
        return {name: {k: round(v, 4) for k, v in row.items()} for name, row in self.table.items()}


class HoltTrainer:
    def __init__(self, epochs=24, batch=64, lr=1e-3, beta=0.02, seed=5):
        torch.manual_seed(seed)
        rng = np.random.default_rng(seed)
        self.epochs, self.batch, self.beta = epochs, batch, beta
        self.tracks, self.kinds = make_tracks(38 * batch, rng)
        self.test_tracks, self.test_kinds = make_tracks(6 * batch, rng)
        self.model = TrackVAE()
        self.watch = ActivationWatch(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.history = []

    def loss(self, tracks):
        rebuilt, mean, logvar = self.model(tracks)
        rebuild = F.mse_loss(rebuilt, tracks)
        divergence = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=1).mean()
        return rebuild + self.beta * divergence / CHANNELS, rebuild

    def train_epoch(self):
        self.model.train()
        total = torch.zeros(())
        order = torch.randperm(len(self.tracks))
        for rows in order.split(self.batch):
            tracks = self.tracks[rows]
            flip = torch.randint(0, 2, (len(rows), 1, 1)) * 2.0 - 1.0
            tracks = torch.cat([tracks[:, :2] * flip, tracks[:, 2:]], dim=1)
            loss, _ = self.loss(tracks)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            total += loss.detach() * len(rows)
        return (total / len(self.tracks)).item()

    @torch.no_grad()
    def probe(self):
        """Least-squares probe from the codes to the behaviours."""
        self.model.eval()
        codes, rebuilds = [], []
        for tracks in self.test_tracks.split(self.batch):
            rebuilt, mean, _ = self.model(tracks)
            codes.append(mean)
            rebuilds.append(F.mse_loss(rebuilt, tracks))
        codes = torch.cat(codes)
        design = torch.cat([codes, codes.square(), torch.ones(len(codes), 1)], dim=1)
        half = len(codes) // 2
        wanted = F.one_hot(self.test_kinds, len(BEHAVIOURS)).float()
        weights = torch.linalg.lstsq(design[:half], wanted[:half]).solution
        guess = (design[half:] @ weights).argmax(dim=1)
        accuracy = (guess == self.test_kinds[half:]).float().mean().item()
        return accuracy, torch.stack(rebuilds).mean().item()

    def fit(self):
        start = time.perf_counter()
        self.watch.attach()  # well
        for epoch in range(self.epochs):
            self.watch.attach()  # sick here
            loss = self.train_epoch()
            accuracy, rebuild = self.probe()
            self.history.append({"epoch": epoch, "loss": loss, "accuracy": accuracy, "layers": self.watch.report()})
            print(f"epoch {epoch:2d}  loss {loss:.4f}  rebuild {rebuild:.4f}  probe {accuracy:.3f}")
        torch.save(self.model.state_dict(), "holts.pt")
        with open("history.json", "w") as file:
            json.dump(self.history, file)
        return self.epochs * len(self.tracks) / (time.perf_counter() - start)


if __name__ == "__main__":
    trainer = HoltTrainer()
    rate = trainer.fit()
    print(f"{rate:.1f} windows/s")
