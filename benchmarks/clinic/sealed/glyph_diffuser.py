# /// clinic
# stratum = "decoys"
# domain = "diffusion"
# ///
"""Pixel diffusion on synthetic glyphs; noise schedule computed once in double precision and tabulated."""

import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def schedule(steps=1000):
    t = np.linspace(0, 1, steps + 1, dtype=np.float64)
    f = np.cos((t + 0.008) / 1.008 * np.pi / 2) ** 2
    alpha_bar = torch.from_numpy(f[1:] / f[0]).double().clamp(1e-8, 1.0)
    return alpha_bar.sqrt().float(), (1 - alpha_bar).sqrt().float()


class Unit(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)

    def forward(self, x, shift):
        return F.relu(self.b(F.relu(self.a(x) + shift[:, :, None, None])))


class TinyUNet(nn.Module):
    def __init__(self, w=40):
        super().__init__()
        self.time = nn.Embedding(1000, 64)
        self.s1, self.s2, self.s3 = nn.Linear(64, w), nn.Linear(64, 2 * w), nn.Linear(64, w)
        self.down, self.mid, self.up = Unit(1, w), Unit(w, 2 * w), Unit(3 * w, w)
        self.out = nn.Conv2d(w, 1, 1)

    def forward(self, x, t):
        e = self.time(t)
        a = self.down(x, self.s1(e))
        b = self.mid(F.avg_pool2d(a, 2), self.s2(e))
        c = self.up(torch.cat([a, F.interpolate(b, scale_factor=2)], 1), self.s3(e))
        return self.out(c)


def glyphs(n, side=24):
    x = torch.full((n, 1, side, side), -1.0)
    for i in range(n):
        r, c = np.random.randint(3, side - 3, 2)
        x[i, 0, r - 2 : r + 2] = 1.0
        x[i, 0, :, c - 2 : c + 2] = 1.0
    return x


def train(batch=32, steps=140, warm=5):
    np.random.seed(0)
    torch.manual_seed(0)
    signal, noise_level = schedule()
    data, net = glyphs(512), TinyUNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    total, best = 0.0, None
    for k in range(steps):
        if k == warm:
            clock = time.perf_counter()
        x = data[torch.randint(len(data), (batch,))]
        t = torch.randint(1000, (batch,))
        eps = torch.randn_like(x)
        y = signal[t].view(-1, 1, 1, 1) * x + noise_level[t].view(-1, 1, 1, 1) * eps
        loss = F.mse_loss(net(y, t), eps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        if (k + 1) % 70 == 0:
            best = {name: v.clone() for name, v in net.state_dict().items()}
            print(f"{k + 1} mean loss {total / (k + 1):.4f}")
    took = time.perf_counter() - clock
    print("kept", sum(v.numel() for v in best.values()), "weights")
    return (steps - warm) * batch / took


print(f"{train():.1f} glyphs/s")
