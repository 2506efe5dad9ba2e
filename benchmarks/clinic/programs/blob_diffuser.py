# /// clinic
# expect = ["PD04"]
# stratum = "twins"
# domain = "image diffusion (Accelerate)"
# ///
"""Train a small denoising diffusion U-Net on synthetic blobs with Accelerate."""

import copy
import math
import time
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed
from torch.utils.data import DataLoader, Dataset

IMAGES = 4096
SIZE = 24
BATCH = 16
WIDTH = 32
TIMESTEPS = 400
STEPS = 180
WARMUP = 20


@dataclass
class Record:
    seed: int
    centres: list = field(default_factory=list)
    tags: dict = field(default_factory=dict)


class Blobs(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(0)
        xy = torch.rand(n, 3, 2, generator=g).tolist()
        self.records = [Record(i, [tuple(p) for p in xy[i]], {"split": "train", "points": xy[i]}) for i in range(n)]
        axis = torch.linspace(0, 1, SIZE)
        self.grid = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1)

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        centres = torch.tensor(self.records[i].centres)
        d = (self.grid[None] - centres[:, None, None]).square().sum(-1)
        return torch.exp(-d / 0.02) * 2 - 1


class Block(nn.Module):
    def __init__(self, cin, cout, tdim):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, padding=1)
        self.b = nn.Conv2d(cout, cout, 3, padding=1)
        self.t = nn.Linear(tdim, cout)
        self.n1, self.n2 = nn.GroupNorm(8, cout), nn.GroupNorm(8, cout)

    def forward(self, x, t):
        h = F.silu(self.n1(self.a(x))) + self.t(t)[:, :, None, None]
        return F.silu(self.n2(self.b(h)))


class UNet(nn.Module):
    def __init__(self, width=WIDTH, tdim=64):
        super().__init__()
        self.tdim = tdim
        self.time = nn.Sequential(nn.Linear(tdim, tdim), nn.SiLU(), nn.Linear(tdim, tdim))
        self.down1, self.down2 = Block(3, width, tdim), Block(width, 2 * width, tdim)
        self.mid = Block(2 * width, 2 * width, tdim)
        self.up2, self.up1 = Block(4 * width, width, tdim), Block(2 * width, width, tdim)
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x, t):
        freqs = torch.exp(-math.log(1e4) * torch.arange(self.tdim // 2) / (self.tdim // 2))
        angle = t[:, None].float() * freqs
        t = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        a = self.down1(x, t)
        b = self.down2(F.avg_pool2d(a, 2), t)
        m = self.mid(F.avg_pool2d(b, 2), t)
        u = self.up2(torch.cat([F.interpolate(m, scale_factor=2), b], 1), t)
        return self.out(self.up1(torch.cat([F.interpolate(u, scale_factor=2), a], 1), t))


class Tracker:
    def __init__(self, model, decay=0.995):
        self.shadow, self.decay, self.losses = copy.deepcopy(model).requires_grad_(False), decay, []

    @torch.no_grad()
    def after_step(self, model, loss, *tensors):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.lerp_(p, 1 - self.decay)
        self.losses.append(loss.item())
        if len(self.losses) % 4 == 0:  # sick
            loss, *tensors = release_memory(loss, *tensors)  # sick here


def main():
    set_seed(1)
    accelerator = Accelerator(cpu=True)
    model = UNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-4)
    loader = DataLoader(Blobs(IMAGES), batch_size=BATCH, shuffle=True, drop_last=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    tracker = Tracker(accelerator.unwrap_model(model))
    keep = torch.cumprod(1 - torch.linspace(1e-4, 0.03, TIMESTEPS), 0)
    step = 0
    while step < STEPS:
        for images in loader:
            t = torch.randint(TIMESTEPS, (len(images),))
            noise = torch.randn_like(images)
            a = keep[t][:, None, None, None]
            loss = F.mse_loss(model(a.sqrt() * images + (1 - a).sqrt() * noise, t), noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
            tracker.after_step(model, loss, images, noise)
            step += 1
            if step == WARMUP:
                start = time.perf_counter()
            if step == STEPS:
                break
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
