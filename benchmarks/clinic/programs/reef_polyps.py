# /// clinic
# expect = ["PD08.needless-checkpointing"]
# allow = ["PD08.allocator-churn", "PD05.batch-too-small", "PD07.bfloat16-unused"]
# stratum = "twins"
# domain = "ecology"
# sizes = {WIDTH = [192, 256], DEPTH = [5, 7]}
# ///
"""Counts of polyps from patches of reef photographs, by a deep mixer."""

import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 224
DEPTH = 6
PATCHES = 36
BATCH = 24
STEPS = 180


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.across = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.along = nn.Sequential(nn.Linear(PATCHES, 2 * PATCHES), nn.GELU(), nn.Linear(2 * PATCHES, PATCHES))

    def forward(self, x):
        x = x + self.across(x)
        return x + self.along(x.transpose(1, 2)).transpose(1, 2)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(64, WIDTH)
        self.blocks = nn.ModuleList(Mixer() for _ in range(DEPTH))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, patches):
        x = self.into(patches)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # sick here
            x = block(x)  # well
        return self.out(x.mean(1)).squeeze(1)


def main():
    torch.manual_seed(12)
    model = Counter()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
    weights = torch.randn(64)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        patches = torch.randn(BATCH, PATCHES, 64)
        count = (patches @ weights).relu().mean(1)
        loss = nn.functional.huber_loss(model(patches), count)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(step, f"{loss.item():.3f}")
    print(f"{BATCH * (STEPS - 10) / (time.perf_counter() - began):.1f} photographs/s")


if __name__ == "__main__":
    main()
