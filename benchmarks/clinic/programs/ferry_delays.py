# /// clinic
# expect = ["PD19.collectives-one-by-one"]
# stratum = "twins"
# domain = "ferry timetables"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Delays of island ferries from the timetable, on two ranks.

    torchrun --nproc-per-node 2 train.py

Each sailing is a row: line, vessel, harbours, month, hour and a few numbers (tide, wind, booked cars ...). The model
is a small feature-token transformer; every rank reads its own half of the sailings.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel  # well


@dataclass
class Config:
    sailings: int = 12_000
    held_out: int = 2_400
    epochs: int = 5
    batch: int = 128
    width: int = 64
    heads: int = 4
    blocks: int = 3
    lr: float = 1e-3
    seed: int = 3
    sizes: dict = field(default_factory=lambda: dict(line=40, vessel=25, origin=60, month=12, hour=24, day=7))
    numbers: tuple = ("tide", "wind", "gusts", "waves", "cars", "lorries", "turnaround", "distance")


def make_timetable(cfg):
    rng = np.random.default_rng(cfg.seed)
    cats = np.stack([rng.integers(0, n, cfg.sailings) for n in cfg.sizes.values()], axis=1)
    nums = rng.normal(size=(cfg.sailings, len(cfg.numbers))).astype(np.float32)
    line_effect = rng.normal(size=cfg.sizes["line"])
    vessel_effect = rng.normal(size=cfg.sizes["vessel"])
    delay = 4 + 2 * line_effect[cats[:, 0]] + vessel_effect[cats[:, 1]] * np.maximum(nums[:, 1], 0)
    delay += 1.5 * np.abs(nums[:, 0]) + 3 * ((cats[:, 4] > 15) & (cats[:, 5] > 4)) + nums[:, 4] * nums[:, 6]
    delay += rng.normal(size=cfg.sailings)
    delay = ((delay - delay.mean()) / delay.std()).astype(np.float32)
    return torch.from_numpy(cats), torch.from_numpy(nums), torch.from_numpy(delay)


class Tokenizer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(n, cfg.width) for n in cfg.sizes.values())
        self.scale = nn.Parameter(0.1 * torch.randn(len(cfg.numbers), cfg.width))
        self.shift = nn.Parameter(torch.zeros(len(cfg.numbers), cfg.width))
        self.cls = nn.Parameter(0.02 * torch.randn(1, 1, cfg.width))

    def forward(self, cats, nums):
        words = [table(cats[:, i]).unsqueeze(1) for i, table in enumerate(self.tables)]
        numbers = nums.unsqueeze(-1) * self.scale + self.shift
        return torch.cat([self.cls.expand(len(cats), -1, -1), *words, numbers], dim=1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class DelayModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.tokens = Tokenizer(cfg)
        self.blocks = nn.Sequential(*[Block(cfg.width, cfg.heads) for _ in range(cfg.blocks)])
        self.head = nn.Sequential(nn.LayerNorm(cfg.width), nn.ReLU(), nn.Linear(cfg.width, 1))

    def forward(self, cats, nums):
        return self.head(self.blocks(self.tokens(cats, nums))[:, 0]).squeeze(-1)


@torch.no_grad()
def rmse(model, cats, nums, delay):
    error = torch.zeros(2)
    rows = torch.arange(dist.get_rank(), len(delay), dist.get_world_size())
    for p in rows.split(400):
        error += torch.tensor([(model(cats[p], nums[p]) - delay[p]).pow(2).sum(), len(p)])
    dist.all_reduce(error)
    return (error[0] / error[1]).sqrt().item()


def main():
    cfg = Config()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    cats, nums, delay = make_timetable(cfg)
    test = [v[: cfg.held_out] for v in (cats, nums, delay)]
    cats, nums, delay = [v[cfg.held_out :] for v in (cats, nums, delay)]
    torch.manual_seed(cfg.seed)
    model = DelayModel(cfg)
    model = DistributedDataParallel(model)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4, fused=True)
    shuffle = torch.Generator().manual_seed(cfg.seed)

    seen = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        mine = torch.randperm(len(delay), generator=shuffle)[rank::world]
        for pick in mine.split(cfg.batch):
            loss = F.huber_loss(model(cats[pick], nums[pick]), delay[pick])
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():  # sick here
                dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)  # sick here
                p.grad /= world  # sick here
            optimizer.step()
            seen += len(pick) * world
        error = rmse(model, *test)
        if rank == 0:
            print(f"epoch {epoch}: held-out RMSE {error:.3f}", flush=True)
    rate = seen / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} sailings/s")


if __name__ == "__main__":
    main()
