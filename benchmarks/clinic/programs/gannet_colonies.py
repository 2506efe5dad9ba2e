# /// clinic
# expect = ["PD15.growing-tensor", "PD10.grown-by-cat"]
# stratum = "twins"
# domain = "gannet colonies"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""What a gannet does, from its tag: one colony after the other, with replay of the earlier ones (two ranks)."""

import os
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

BEHAVIOURS = ["nest", "rest on sea", "flap", "glide", "plunge"]
COLONIES = ["Bass Rock", "Grassholm", "Hermaness", "Ailsa Craig", "Sule Skerry"]


@dataclass
class Config:
    channels: int = 6  # acceleration, magnetometer
    length: int = 128
    steps: int = 140  # batches that each colony sends
    batch: int = 32
    replay: int = 32
    memory: int = 20000
    lr: float = 1e-3
    log_every: int = 35


def tag_windows(n, cfg, colony, gen):
    """Windows of a deployment; tags sit differently on the birds of each colony."""
    y = torch.randint(0, len(BEHAVIOURS), (n,), generator=gen)
    t = torch.arange(cfg.length) / 32.0
    beat = torch.tensor([0.1, 0.4, 3.6, 0.8, 1.5])[y] * (1 + 0.1 * torch.randn(n, generator=gen)) + 0.08 * colony
    size = torch.tensor([0.1, 0.3, 1.2, 0.4, 0.8])[y]
    phase = 6.28 * torch.rand(n, 1, generator=gen)
    wave = size[:, None] * torch.sin(6.28 * beat[:, None] * t + phase)
    dive = (y == 4).float()[:, None] * 2.5 * torch.exp(-((t - 2.0) ** 2) / 0.05)
    mount = torch.randn(2, cfg.channels, generator=torch.Generator().manual_seed(colony))
    x = wave[:, None, :] * mount[0][None, :, None] + dive[:, None, :] * mount[1][None, :, None]
    return x + 0.35 * torch.randn(n, cfg.channels, cfg.length, generator=gen), y


class ReplayMemory:
    """First in, first out memory of windows from all colonies so far."""

    def __init__(self, capacity, shape, seed):
        self.capacity = capacity
        self.x = torch.empty(0, *shape)  # sick
        self.y = torch.empty(0, dtype=torch.long)  # sick
        self.x = torch.empty(capacity, *shape)  # well
        self.y = torch.empty(capacity, dtype=torch.long)  # well
        self.seen = 0
        self.gen = torch.Generator().manual_seed(seed)

    def __len__(self):
        return min(self.seen, self.capacity)

    def add(self, x, y):
        self.x = torch.cat([self.x, x])[-self.capacity :]  # sick here
        self.y = torch.cat([self.y, y])[-self.capacity :]  # sick here
        slots = torch.arange(self.seen, self.seen + len(x)) % self.capacity  # well
        self.x[slots] = x  # well
        self.y[slots] = y  # well
        self.seen += len(x)

    def sample(self, n):
        index = torch.randint(0, len(self), (n,), generator=self.gen)
        return self.x[index], self.y[index]


class TagNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv1d(cfg.channels, 32, 7, padding=3),
            nn.GroupNorm(4, 32),
            nn.GELU(),
            nn.MaxPool1d(2),
            nn.Conv1d(32, 64, 5, padding=2),
            nn.GroupNorm(8, 64),
            nn.GELU(),
            nn.MaxPool1d(2),
            nn.Conv1d(64, 64, 5, padding=2),
            nn.GroupNorm(8, 64),
            nn.GELU(),
        )
        self.head = nn.Sequential(nn.Linear(128, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, len(BEHAVIOURS)))

    def forward(self, x):
        h = self.features(x)
        return self.head(torch.cat([h.mean(-1), h.amax(-1)], dim=1))


class ContinualTrainer:
    def __init__(self, cfg, rank, world):
        self.cfg, self.rank, self.world = cfg, rank, world
        self.model = DistributedDataParallel(TagNet(cfg))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=cfg.lr)
        self.memory = ReplayMemory(cfg.memory, (cfg.channels, cfg.length), seed=100 + rank)
        self.exams = []
        self.windows = 0

    def step(self, x, y):
        self.model.train()
        weight = torch.ones(len(x))
        inputs, labels = x, y
        if len(self.memory):
            old_x, old_y = self.memory.sample(self.cfg.replay)
            inputs, labels = torch.cat([x, old_x]), torch.cat([y, old_y])
            weight = torch.cat([weight, torch.full((len(old_x),), 0.8)])
        loss = (weight * F.cross_entropy(self.model(inputs), labels, reduction="none")).sum() / weight.sum()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
        self.optimizer.step()
        self.memory.add(x, y)
        self.windows += len(x)
        return loss

    @torch.no_grad()
    def examine(self):
        self.model.eval()
        scores = []
        for x, y in self.exams:
            guess = torch.cat([self.model.module(part).argmax(1) for part in x.split(128)])
            scores.append((guess == y).float().mean())
        scores = torch.stack(scores)
        dist.all_reduce(scores)
        return (scores / self.world).tolist()

    def colony(self, number, windows, exam):
        x, y = windows
        self.exams.append(exam)
        for k, (bx, by) in enumerate(zip(x.split(self.cfg.batch), y.split(self.cfg.batch))):
            loss = self.step(bx, by)
            if self.rank == 0 and k % self.cfg.log_every == 0:
                print(f"{COLONIES[number]:12s} {k:4d} loss {loss.item():.3f}", flush=True)
        scores = self.examine()
        if self.rank == 0:
            print(f"after {COLONIES[number]}: " + " ".join(f"{s:.2f}" for s in scores), flush=True)
            torch.save(self.model.module.state_dict(), f"after_{number}.pt")


def main():
    dist.init_process_group("gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cfg = Config()
    torch.manual_seed(3 + rank)
    gen = torch.Generator().manual_seed(50 + rank)
    stream = []
    for number in range(len(COLONIES)):
        windows = tag_windows(cfg.steps * cfg.batch, cfg, number, gen)
        stream.append((windows, tag_windows(256, cfg, number, gen)))
    trainer = ContinualTrainer(cfg, rank, world)
    dist.barrier()
    began = time.perf_counter()
    for number, (windows, exam) in enumerate(stream):
        trainer.colony(number, windows, exam)
    dist.barrier()
    rate = world * trainer.windows / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} windows/s", flush=True)


if __name__ == "__main__":
    main()
