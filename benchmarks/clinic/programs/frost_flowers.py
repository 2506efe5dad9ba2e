# /// clinic
# expect = ["PD01.onednn-off"]
# stratum = "twins"
# domain = "frost flowers"
# ///
"""Neural cellular automaton that grows frost flowers (the ice crystals on young sea ice) from a single brine pore.

A small update rule is applied again and again to a grid of cells. The kind of flower is told to the seed cell only.
Training uses a pool of half-grown flowers (Mordvintsev et al. 2020).
"""

import argparse
import math
import random
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_reproducible(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.mkldnn.enabled = False  # sick here


def frost_flower(size, arms, branches, sharp, tint):
    """RGBA picture (4, size, size) of one crystal with side branches on its arms."""
    line = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    radius, angle = torch.sqrt(x**2 + y**2), torch.atan2(y, x)
    fold = torch.cos(arms * angle)
    arm = torch.exp(-sharp * (1 - fold) * radius * 4)
    barbs = 0.5 + 0.5 * torch.cos(branches * math.pi * (radius - 0.15 * (1 - fold)))
    body = (arm * 0.7 + 0.5 * barbs * torch.exp(-2.0 * (1 - fold))) * torch.sigmoid(18 * (0.82 - radius))
    alpha = body.clamp(0, 1)
    colour = torch.tensor(tint).view(3, 1, 1) * (0.6 + 0.4 * barbs)
    return torch.cat([colour * alpha, alpha.unsqueeze(0)])


def herbarium(size):
    kinds = [
        (6, 5, 3.0, (0.8, 0.9, 1.0)),
        (4, 4, 2.0, (0.9, 0.9, 1.0)),
        (8, 6, 4.0, (0.7, 0.9, 0.9)),
        (5, 3, 2.5, (1.0, 0.9, 0.9)),
        (3, 7, 1.5, (0.8, 1.0, 0.9)),
        (7, 4, 3.5, (0.9, 0.8, 1.0)),
    ]
    return torch.stack([frost_flower(size, *k) for k in kinds])


class UpdateRule(nn.Module):
    """What a cell does next, from its 3x3 neighbourhood."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.slope_x = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.slope_y = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.think = nn.Conv2d(3 * channels, hidden, 1)
        self.act = nn.Conv2d(hidden, channels, 1)
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
        with torch.no_grad():
            self.slope_x.weight.copy_(sobel.expand_as(self.slope_x.weight))
            self.slope_y.weight.copy_(sobel.T.expand_as(self.slope_y.weight))
        nn.init.zeros_(self.act.weight)
        nn.init.zeros_(self.act.bias)

    def forward(self, grid):
        senses = torch.cat([grid, self.slope_x(grid), self.slope_y(grid)], dim=1)
        return self.act(F.relu(self.think(senses)))


class FrostAutomaton(L.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.rule = UpdateRule(args.channels, args.hidden)
        self.targets = herbarium(args.size)
        self.register_buffer("kind", torch.arange(args.pool) % len(self.targets))
        self.register_buffer("pool", self.seeds(self.kind))
        self.first = self.last = None
        self.history = []

    def seeds(self, kind):
        grid = torch.zeros(len(kind), self.args.channels, self.args.size, self.args.size)
        middle = self.args.size // 2
        grid[:, 3, middle, middle] = 1.0
        grid[torch.arange(len(kind)), 4 + kind, middle, middle] = 1.0
        return grid

    def forward(self, grid, steps):
        for _ in range(steps):
            alive = F.max_pool2d(grid[:, 3:4], 3, stride=1, padding=1) > 0.1
            fire = torch.rand_like(grid[:, :1]) < 0.5
            grid = (grid + self.rule(grid) * fire) * alive
        return grid

    def training_step(self, batch, batch_idx):
        if self.first is None:
            self.first = time.perf_counter()
        (index,) = batch
        kind = self.kind[index]
        grid = self.pool[index]
        with torch.no_grad():
            worst = F.mse_loss(grid[:, :4], self.targets[kind], reduction="none").mean((1, 2, 3)).argmax()
            grid[worst] = self.seeds(kind[worst : worst + 1])[0]
        grown = self(grid, self.args.steps)
        loss = F.mse_loss(grown[:, :4], self.targets[kind]) + 1e-3 * (grown.abs() - 2).relu().mean()
        self.pool[index] = grown.detach().clamp(-3, 3)
        self.history.append(loss.detach())
        return loss

    def on_train_epoch_end(self):
        with torch.no_grad():
            grown = self(self.seeds(torch.arange(len(self.targets))), 2 * self.args.steps)
            error = F.mse_loss(grown[:, :4], self.targets)
        mean = torch.stack(self.history).mean().item()
        self.history.clear()
        print(f"epoch {self.current_epoch:2d}  train loss {mean:.4f}  grown from seed {error.item():.4f}")
        self.last = time.perf_counter()

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.args.lr)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)]


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=32)
    p.add_argument("--channels", type=int, default=16)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--pool", type=int, default=256)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


if __name__ == "__main__":
    args = parse()
    make_reproducible(args.seed)
    model = FrostAutomaton(args)
    loader = DataLoader(TensorDataset(torch.arange(args.pool)), batch_size=args.batch_size, shuffle=True)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
    )
    trainer.fit(model, loader)
    rate = args.epochs * args.pool / (model.last - model.first)
    print(f"{rate:.1f} flowers/s")
