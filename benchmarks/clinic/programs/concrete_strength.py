# /// clinic
# stratum = "placebo"
# domain = "civil engineering, tabular regression"
# sizes = {WIDTH = [352, 448], BATCH = [448, 576]}
# ///
"""Compressive strength of concrete mixes from their composition and curing record."""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 400
BATCH = 512
INPUTS = 64


def mixes(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, INPUTS, generator=g)
    hydration = torch.sigmoid(x[:, :16].mean(1) * 4)
    ratio = torch.exp(-0.5 * x[:, 16:32].mean(1).abs() * 4)
    y = 3 * hydration * ratio + 0.3 * x[:, 32:40].sin().sum(1) + 0.05 * torch.randn(n, generator=g)
    return x, (y - y.mean()) / y.std()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.back = nn.Linear(2 * width, width)

    def forward(self, h):
        return h + self.back(F.relu(self.wide(self.norm(h))))


class Strength(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.stem = nn.Linear(INPUTS, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(blocks)])
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(1)


def r_squared(model, x, y):
    model.eval()
    with torch.inference_mode():
        rest = (model(x) - y).square().mean()
    model.train()
    return 1 - (rest / y.var()).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--blocks", type=int, default=3)
    ap.add_argument("--lr", type=float, default=5e-4)
    args = ap.parse_args()

    torch.manual_seed(21)
    x, y = mixes(BATCH * 60, 1)
    xv, yv = mixes(2048, 2)
    model = Strength(WIDTH, args.blocks)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3, fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)

    for epoch in range(args.epochs):
        if epoch == 1:
            start = time.perf_counter()
        total = torch.zeros(())
        for rows in torch.randperm(len(x)).split(BATCH):
            loss = F.mse_loss(model(x[rows]), y[rows])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
        sched.step()
        print(f"epoch {epoch}  mse {total.item() / 60:.4f}  r2 {r_squared(model, xv, yv):.3f}", flush=True)
    print(f"{(args.epochs - 1) * len(x) / (time.perf_counter() - start):.1f} mixes/s")


if __name__ == "__main__":
    main()
