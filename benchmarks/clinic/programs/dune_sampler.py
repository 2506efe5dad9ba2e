# /// clinic
# expect = ["PD03.iterator-rebuilt", "PD17.state-copies"]
# stratum = "comorbid"
# domain = "diffusion"
# ///
"""Denoising diffusion for dune profiles (one-dimensional height lines), with an averaged copy of the weights."""

import copy
import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

POINTS, LEVELS = 64, 200


class Profiles(Dataset):
    """Sums of a few asymmetric waves; a batch is fetched in one go."""

    def __init__(self, count=200_000):
        x = torch.linspace(0, 2 * math.pi, POINTS)
        phase, tall = torch.rand(count, 2, 1) * 6.28, 0.3 + torch.rand(count, 2, 1)
        lines = tall * torch.sin(torch.tensor([1.0, 3.0]).view(1, 2, 1) * x + phase)
        self.heights = lines.sum(1) + 0.3 * lines[:, 0] ** 2

    def __len__(self):
        return len(self.heights)

    def __getitems__(self, rows):
        return self.heights[torch.tensor(rows)]


def keep(batch):
    return batch


class Denoiser(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.level = nn.Embedding(LEVELS, width)
        self.enter = nn.Linear(POINTS, width)
        self.body = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(3)
        )
        self.leave = nn.Linear(width, POINTS)

    def forward(self, noisy, level):
        h = self.enter(noisy) + self.level(level)
        for part in self.body:
            h = h + part(h)
        return self.leave(h)


def forever(loader):
    while True:
        yield from loader


def noise_schedule():
    beta = torch.linspace(1e-4, 0.03, LEVELS)
    kept = torch.cumprod(1 - beta, 0)
    return kept.sqrt(), (1 - kept).sqrt()


def train(steps=700, decay=0.995, skip=10):
    torch.manual_seed(31)
    loader = DataLoader(Profiles(), batch_size=96, shuffle=True, drop_last=True, collate_fn=keep)
    stream = forever(loader)  # well:a
    net = Denoiser()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    signal, noise = noise_schedule()
    averaged = copy.deepcopy(net.state_dict())
    total = torch.zeros(())
    for step in range(steps):
        if step == skip:
            start = time.perf_counter()
        clean = next(iter(loader))  # sick:a
        clean = next(stream)  # well:a
        level = torch.randint(0, LEVELS, (len(clean),))
        eps = torch.randn_like(clean)
        noisy = signal[level, None] * clean + noise[level, None] * eps
        loss = (net(noisy, level) - eps).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()

        now = copy.deepcopy(net.state_dict())  # sick:b
        averaged = {name: decay * averaged[name] + (1 - decay) * now[name] for name in now}  # sick:b
        torch._foreach_lerp_(list(averaged.values()), list(net.state_dict().values()), 1 - decay)  # well:b

        if (step + 1) % 140 == 0:
            print(f"step {step + 1}: {total.item() / 140:.4f}")
            total.zero_()
    rate = (steps - skip) * 96 / (time.perf_counter() - start)
    net.load_state_dict(averaged)
    return rate


if __name__ == "__main__":
    print(f"{train():.1f} profiles/s")
