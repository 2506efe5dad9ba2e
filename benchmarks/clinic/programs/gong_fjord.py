# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "recordings that are warped"
# ///
"""Tells apart the strokes of a gong from twelve-channel recordings, with time and magnitude warping as augmentation."""

import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.interpolate import CubicSpline

CHANNELS, LENGTH, CLASSES = 12, 256, 6
BATCH, EPOCHS = 64, 16


def make_data(count, gen):
    """Damped strokes: the class fixes the pitch ratio and the attack, the rest is chance."""
    y = torch.randint(CLASSES, (count,), generator=gen)
    t = torch.linspace(0, 1, LENGTH)
    base = 4 + 6 * torch.rand(count, 1, 1, generator=gen)
    ratio = 1.2 + 0.25 * y.view(-1, 1, 1)
    decay = 1 + 3 * torch.rand(count, CHANNELS, 1, generator=gen)
    phase = 2 * math.pi * torch.rand(count, CHANNELS, 1, generator=gen)
    gain = torch.rand(count, CHANNELS, 1, generator=gen)
    onset = 0.3 * torch.rand(count, 1, 1, generator=gen)
    since = (t - onset).clamp(min=0)
    wave = torch.sin(2 * math.pi * base * since + phase) + gain * torch.sin(2 * math.pi * base * ratio * since + phase)
    x = wave * torch.exp(-decay * since) * (since > 0)
    return x + 0.25 * torch.randn(x.shape, generator=gen), y


class SplineCurves(nn.Module):
    """Random smooth curves around one: cubic splines through normal draws at fixed knots.

    The knots never move, so a spline is a linear map of its draws and the map is worked out once.
    """

    def __init__(self, length, knots, sigma):
        super().__init__()
        basis = CubicSpline(np.linspace(0, length - 1, knots + 2), np.eye(knots + 2))(np.arange(length))
        self.register_buffer("basis", torch.tensor(basis.T, dtype=torch.float32))
        self.sigma = sigma

    def forward(self, *shape):
        return 1 + self.sigma * torch.randn(*shape, self.basis.shape[0]) @ self.basis


class TimeWarp(nn.Module):
    """Plays each recording at a smoothly changing tempo; all channels of a recording share it."""

    def __init__(self, length, knots=4, sigma=0.2):
        super().__init__()
        self.tempo = SplineCurves(length, knots, sigma)

    def forward(self, x):
        batch, channels, length = x.shape
        clock = self.tempo(batch).clamp_(min=0.1).cumsum(1)
        clock = (clock - clock[:, :1]) / (clock[:, -1:] - clock[:, :1]) * (length - 1)
        grid, clock = np.arange(length), clock.numpy()  # sick
        rows = [np.interp(at, grid, row) for at, rec in zip(clock, x.numpy()) for row in rec]  # sick here
        return torch.from_numpy(np.stack(rows)).float().view_as(x)  # sick
        left = clock.long().clamp_(max=length - 2)  # well
        part = (clock - left)[:, None]  # well
        left = left[:, None].expand(-1, channels, -1)  # well
        return torch.lerp(x.gather(2, left), x.gather(2, left + 1), part)  # well


class MagnitudeWarp(nn.Module):
    def __init__(self, length, knots=4, sigma=0.15):
        super().__init__()
        self.gain = SplineCurves(length, knots, sigma)

    def forward(self, x):
        return x * self.gain(x.shape[0], 1)


class Stage(nn.Module):
    def __init__(self, cin, cout, kernel=5):
        super().__init__()
        self.down = nn.Conv1d(cin, cout, kernel, stride=2, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(cout)
        self.same = nn.Conv1d(cout, cout, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.norm(self.down(x)), inplace=True)
        return x + F.relu(self.same(x))


class StrokeNet(nn.Module):
    def __init__(self, widths=(16, 32, 48)):
        super().__init__()
        pairs = zip((CHANNELS, *widths), widths)
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in pairs))
        self.head = nn.Linear(2 * widths[-1], CLASSES)

    def forward(self, x):
        x = self.stages(x)
        return self.head(torch.cat([x.mean(2), x.amax(2)], dim=1))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    hits = sum((model(a).argmax(1) == b).sum().item() for a, b in zip(x.split(256), y.split(256)))
    model.train()
    return hits / len(y)


def main():
    torch.manual_seed(21)
    x, y = make_data(4608, torch.Generator().manual_seed(22))
    n_train = 4096
    per_epoch = n_train // BATCH
    augment = nn.Sequential(TimeWarp(LENGTH), MagnitudeWarp(LENGTH))
    model = StrokeNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=EPOCHS * per_epoch)

    seen, began = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        total = torch.zeros(())
        for idx in torch.randperm(n_train).split(BATCH):
            loss = F.cross_entropy(model(augment(x[idx])), y[idx], label_smoothing=0.05)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            total += loss.detach()
            seen += len(idx)
        if epoch % 4 == 3:
            print(f"epoch {epoch}: loss {total.item() / per_epoch:.3f}")
    took = time.perf_counter() - began

    print(f"held-out accuracy {accuracy(model, x[n_train:], y[n_train:]):.3f}")
    print(f"{seen / took:.1f} samples/s")


if __name__ == "__main__":
    main()
