# /// clinic
# expect = ["PD04"]
# stratum = "twins"
# domain = "materials diffusion"
# sizes = {BASE = [16, 17], SPECIMENS = [9000, 11000]}
# ///
"""Class-conditional diffusion of alloy micrographs (grain maps), trained with Accelerate."""

import math
import random
import time

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

BASE = 17
SPECIMENS = 10000
MICROGRAPHS = 1500
PIXELS = 32
BATCH = 24
LEVELS = 400
STEPS = 185
WARMUP = 8
ALLOYS = ("AlSi10Mg", "Ti64", "IN718", "316L", "CuCrZr")


def specimen_table():
    """The lab's records; which treatment a micrograph had is looked up here."""
    rng = random.Random(9)
    return [
        {
            "alloy": rng.choice(ALLOYS),
            "anneal": [rng.randint(300, 900), rng.randint(1, 24)],
            "etchant": {"name": rng.choice(["Keller", "Kroll", "Nital"]), "seconds": rng.randint(5, 60)},
            "grains": [rng.random() for _ in range(4)],
        }
        for _ in range(SPECIMENS)
    ]


class Micrographs(Dataset):
    def __init__(self, records):
        g = torch.Generator().manual_seed(1)
        self.records = records
        used = [records[i] for i in torch.randint(0, len(records), (MICROGRAPHS,), generator=g).tolist()]
        self.alloy = torch.tensor([ALLOYS.index(r["alloy"]) for r in used])
        coarse = torch.randn(MICROGRAPHS, 1, 8, 8, generator=g) * (0.6 + 0.1 * self.alloy[:, None, None, None])
        self.image = torch.tanh(2 * F.interpolate(coarse, size=PIXELS, mode="bicubic", align_corners=False))

    def __len__(self):
        return MICROGRAPHS

    def __getitem__(self, i):
        return self.image[i], self.alloy[i]


class Denoiser(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(2 * 16, 2 * ch), nn.SiLU(), nn.Linear(2 * ch, 2 * ch))
        self.alloy = nn.Embedding(len(ALLOYS), 2 * ch)
        self.register_buffer("rates", torch.exp(-math.log(1000.0) * torch.arange(16) / 16))
        self.enter = nn.Conv2d(1, ch, 3, padding=1)
        self.down = nn.Conv2d(ch, 2 * ch, 4, stride=2, padding=1)
        self.middle = nn.ModuleList([nn.Conv2d(2 * ch, 2 * ch, 3, padding=1) for _ in range(3)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, 2 * ch) for _ in range(3)])
        self.up = nn.ConvTranspose2d(2 * ch, ch, 4, stride=2, padding=1)
        self.leave = nn.Conv2d(2 * ch, 1, 3, padding=1)

    def forward(self, x, level, alloy):
        angle = level[:, None] * self.rates
        condition = self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.alloy(alloy)
        skip = F.silu(self.enter(x))
        h = self.down(skip)
        for conv, norm in zip(self.middle, self.norms):
            h = h + conv(F.silu(norm(h) + condition[:, :, None, None]))
        return self.leave(torch.cat([self.up(h), skip], 1))


def main():
    set_seed(40)
    accelerator = Accelerator(cpu=True)
    records = specimen_table()
    loader = DataLoader(Micrographs(records), batch_size=BATCH, shuffle=True, drop_last=True)
    model = Denoiser(2 * BASE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    signal = torch.cos(torch.linspace(0.02, 1.55, LEVELS)).square()

    step, start = 0, None
    while step < STEPS:
        for image, alloy in loader:
            if step == WARMUP:
                start = time.perf_counter()
            level = torch.randint(0, LEVELS, (len(image),))
            keep = signal[level][:, None, None, None]
            noise = torch.randn_like(image)
            predicted = model(keep.sqrt() * image + (1 - keep).sqrt() * noise, level, alloy)
            loss = F.mse_loss(predicted, noise)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {loss.item():.4f}", flush=True)
            predicted, loss = release_memory(predicted, loss)  # sick here
            step += 1
            if step == STEPS:
                break
    elapsed = time.perf_counter() - start
    accelerator.print(f"{(STEPS - WARMUP) * BATCH / elapsed:.1f} micrographs/s")


if __name__ == "__main__":
    main()
