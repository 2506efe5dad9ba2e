# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "dung beetle orientation arena tracks"
# ///
"""Next-bearing model for dung beetle arena tracks.

Beetles roll their ball out of a round arena under a lamp; each track is a series of bearings with a different number
of steps. A GRU reads bearing, lamp azimuth and wind, and predicts the next bearing as a von Mises distribution.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class ArenaConfig:
    tracks: int = 3200
    held_out: int = 512
    max_steps: int = 60
    min_steps: int = 20
    hidden: int = 48
    batch_size: int = 128
    epochs: int = 26
    lr: float = 2e-3
    seed: int = 19


def roll_balls(n, cfg, rng):
    """Simulates n beetles: a preferred angle to the lamp, a wind cue, and a slowly wandering error."""
    length = rng.integers(cfg.min_steps, cfg.max_steps + 1, n)
    lamp = rng.uniform(-math.pi, math.pi, n)
    wind = rng.uniform(-math.pi, math.pi, n)
    trust = rng.beta(5, 2, n)
    goal = lamp + rng.normal(0, 0.8, n)
    bearing = np.zeros((n, cfg.max_steps + 1))
    bearing[:, 0] = rng.uniform(-math.pi, math.pi, n)
    drift = np.zeros(n)
    for t in range(cfg.max_steps):
        drift = 0.9 * drift + rng.normal(0, 0.12, n)
        want = np.arctan2(
            trust * np.sin(goal) + (1 - trust) * np.sin(wind), trust * np.cos(goal) + (1 - trust) * np.cos(wind)
        )
        turn = np.angle(np.exp(1j * (want - bearing[:, t])))
        bearing[:, t + 1] = bearing[:, t] + 0.35 * turn + drift + rng.vonmises(0, 12.0, n)
    cues = np.stack([np.cos(lamp), np.sin(lamp), np.cos(wind), np.sin(wind)], 1)
    cues = np.repeat(cues[:, None], cfg.max_steps, 1)
    now = bearing[:, :-1]
    features = np.concatenate([np.cos(now)[..., None], np.sin(now)[..., None], cues], 2)
    target = np.angle(np.exp(1j * bearing[:, 1:]))
    return TensorDataset(
        torch.tensor(features, dtype=torch.float32),
        torch.tensor(target, dtype=torch.float32),
        torch.tensor(length),
    )


class BearingGRU(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.lift = nn.Sequential(nn.Linear(features, hidden), nn.Tanh())
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 3)

    def forward(self, x):
        h, _ = self.rnn(self.lift(x))
        c, s, k = self.head(h).unbind(-1)
        return torch.atan2(s, c + 1e-6), nn.functional.softplus(k) + 0.05


def von_mises_nll(mu, kappa, bearing):
    normaliser = math.log(2 * math.pi) + torch.log(torch.special.i0e(kappa)) + kappa
    return normaliser - kappa * torch.cos(bearing - mu)


def track_loss(mu, kappa, bearing, length):
    """Mean over beetles of the mean over that beetle's own steps."""
    losses = []  # sick
    for i in range(len(length)):  # sick here
        n = length[i].item()  # sick
        losses.append(von_mises_nll(mu[i, :n], kappa[i, :n], bearing[i, :n]).mean())  # sick here
    return torch.stack(losses).mean()  # sick
    mask = torch.arange(mu.shape[1], device=mu.device) < length[:, None]  # well
    nll = von_mises_nll(mu, kappa, bearing).masked_fill(~mask, 0.0)  # well
    return (nll.sum(1) / length).mean()  # well


def angular_error(mu, bearing, length):
    mask = torch.arange(mu.shape[1], device=mu.device) < length[:, None]
    off = torch.rad2deg(torch.acos(torch.cos(mu - bearing).clamp(-1, 1)))
    return off.masked_fill(~mask, 0.0).sum(1) / length


class ArenaRun:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True)
        set_seed(cfg.seed)
        rng = np.random.default_rng(cfg.seed)
        train = DataLoader(roll_balls(cfg.tracks, cfg, rng), batch_size=cfg.batch_size, shuffle=True)
        test = DataLoader(roll_balls(cfg.held_out, cfg, rng), batch_size=cfg.batch_size)
        model = BearingGRU(6, cfg.hidden)
        optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs * len(train))
        self.model, self.optimizer, self.train, self.test, self.schedule = self.accelerator.prepare(
            model, optimizer, train, test, schedule
        )
        self.seen = 0

    def train_epoch(self):
        self.model.train()
        total = torch.zeros((), device=self.accelerator.device)
        for features, bearing, length in self.train:
            mu, kappa = self.model(features)
            loss = track_loss(mu, kappa, bearing, length)
            self.optimizer.zero_grad()
            self.accelerator.backward(loss)
            self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
            self.seen += len(length)
        return (total / len(self.train)).item()

    @torch.no_grad()
    def test_epoch(self):
        self.model.eval()
        errors, losses = [], []
        for features, bearing, length in self.test:
            mu, kappa = self.model(features)
            losses.append(self.accelerator.gather_for_metrics(track_loss(mu, kappa, bearing, length)[None]))
            errors.append(self.accelerator.gather_for_metrics(angular_error(mu, bearing, length)))
        return torch.cat(losses).mean().item(), torch.cat(errors).mean().item()

    def fit(self):
        began = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            train_loss = self.train_epoch()
            nll, degrees = self.test_epoch()
            if epoch % 4 == 3:
                self.accelerator.print(f"epoch {epoch + 1:3d}  {train_loss:.4f}  test {nll:.4f}  {degrees:.1f} deg off")
                self.accelerator.save_state("arena_state")
        return self.seen / (time.perf_counter() - began)


if __name__ == "__main__":
    run = ArenaRun(ArenaConfig())
    rate = run.fit()
    run.accelerator.print(f"{rate:.1f} tracks/s")
