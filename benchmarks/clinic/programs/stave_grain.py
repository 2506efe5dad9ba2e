# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "oak barrel stave grain"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Contrastive embedding of oak stave end grain (SimCLR style), so that staves of one tree end up near each other.

torchrun --nproc-per-node 2 train.py
"""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIZE = 40
TREES = 160
STAVES_PER_TREE = 8
BATCH = 24
EPOCHS = 10
TEMPERATURE = 0.2
LEARNING_RATE = 0.06


def place_rank(local_rank: int, local_world: int):
    """Gives every rank of this host its own cores."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // local_world)
    mine = cores[:share]  # sick here
    mine = cores[local_rank * share : (local_rank + 1) * share]  # well
    os.sched_setaffinity(0, mine)
    return mine


def grow_staves(seed: int) -> torch.Tensor:
    """Grey patches of end grain: rings of early and late wood, rays across them, vessels in the early wood."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    staves = np.empty((TREES, STAVES_PER_TREE, SIZE, SIZE), dtype=np.float32)
    for tree in range(TREES):
        spacing, sharpness = rng.uniform(3, 11), rng.uniform(1, 5)
        ray_count, ray_depth = rng.uniform(8, 22), rng.uniform(0.05, 0.3)
        vessel_share, curve = rng.uniform(0.02, 0.12), rng.uniform(-0.6, 0.6)
        for k in range(STAVES_PER_TREE):
            angle = rng.normal(0, 0.25)
            u = xx * np.cos(angle) + yy * np.sin(angle) + curve * (yy - 0.5) ** 2
            v = -xx * np.sin(angle) + yy * np.cos(angle)
            ring = (u * spacing * rng.normal(1, 0.06) + rng.random()) % 1.0
            wood = 0.75 - 0.5 * ring**sharpness
            wood -= ray_depth * (np.sin(v * ray_count * 2 * np.pi + rng.random() * 6) > 0.9)
            wood -= 0.4 * (rng.random((SIZE, SIZE)) < vessel_share * (ring < 0.3))
            staves[tree, k] = wood + rng.normal(0, 0.03, (SIZE, SIZE))
    return torch.from_numpy(staves)


def augment(x: torch.Tensor) -> torch.Tensor:
    """One random view of every patch: flips, shift, brightness, contrast, sensor noise."""
    n = x.shape[0]
    flip = torch.rand(n) < 0.5
    x = torch.where(flip[:, None, None], x.flip(-1), x)
    flip = torch.rand(n) < 0.5
    x = torch.where(flip[:, None, None], x.flip(-2), x)
    dy, dx = torch.randint(-5, 6, (2,)).tolist()
    x = x.roll((dy, dx), (-2, -1))
    gain = 0.8 + 0.4 * torch.rand(n, 1, 1)
    offset = 0.1 * torch.randn(n, 1, 1)
    return x * gain + offset + 0.03 * torch.randn_like(x)


class GrainEncoder(nn.Module):
    def __init__(self, width: int = 24, out: int = 64):
        super().__init__()

        def block(a, b, stride):
            return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.GroupNorm(8, b), nn.ReLU(inplace=True))

        self.stem = nn.Sequential(nn.Conv2d(1, width, 5, 2, 2, bias=False), nn.GroupNorm(8, width), nn.ReLU())
        self.body = nn.Sequential(
            block(width, 2 * width, 2),
            block(2 * width, 2 * width, 1),
            block(2 * width, 4 * width, 2),
            block(4 * width, 4 * width, 1),
        )
        self.project = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Linear(4 * width, out))

    def features(self, x):
        return self.body(self.stem(x[:, None])).mean((2, 3))

    def forward(self, x):
        return F.normalize(self.project(self.features(x)), dim=1)


def contrastive_loss(z: torch.Tensor) -> torch.Tensor:
    n = z.shape[0] // 2
    logits = z @ z.T / TEMPERATURE
    logits = logits.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    target = torch.arange(2 * n).roll(n)
    return F.cross_entropy(logits, target)


@torch.no_grad()
def same_tree_rate(encoder: GrainEncoder, staves: torch.Tensor, rank: int, world: int) -> float:
    """Share of staves whose nearest neighbour comes from the same tree (each rank checks its share of the staves)."""
    encoder.eval()
    flat = staves[::4].flatten(0, 1)
    owner = torch.arange(staves.shape[0])[::4].repeat_interleave(staves.shape[1])
    z = F.normalize(torch.cat([encoder.features(part) for part in flat.split(64)]), dim=1)
    near = z @ z.T
    near.fill_diagonal_(-2)
    mine = slice(rank, None, world)
    hits = torch.tensor([(owner[near.argmax(1)] == owner)[mine].sum(), len(owner[mine])], dtype=torch.float32)
    dist.all_reduce(hits)
    encoder.train()
    return (hits[0] / hits[1]).item()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank, local_world = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    cores = place_rank(local_rank, local_world)
    dist.init_process_group("gloo")
    print(f"rank {rank} of {world} on {len(cores)} core(s)", flush=True)

    torch.manual_seed(3)
    staves = grow_staves(seed=3)
    pairs = TREES * STAVES_PER_TREE
    encoder = GrainEncoder()
    model = DistributedDataParallel(encoder)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9, weight_decay=1e-4)
    steps = pairs // (BATCH * world)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * steps)
    torch.manual_seed(100 + rank)
    order_rng = torch.Generator().manual_seed(3)

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        order = torch.randperm(pairs, generator=order_rng)[rank::world]
        total = torch.zeros(())
        for step in range(steps):
            pick = order[step * BATCH : (step + 1) * BATCH]
            tree, k = pick // STAVES_PER_TREE, pick % STAVES_PER_TREE
            other = (k + torch.randint(1, STAVES_PER_TREE, k.shape)) % STAVES_PER_TREE
            views = torch.cat([augment(staves[tree, k]), augment(staves[tree, other])])
            loss = contrastive_loss(model(views))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            seen += BATCH * world
        rate = same_tree_rate(encoder, staves, rank, world)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {total.item() / steps:.3f}, same tree {rate:.3f}", flush=True)
    dist.barrier()
    elapsed = time.perf_counter() - began
    dist.destroy_process_group()
    if rank == 0:
        print(f"{seen / elapsed:.1f} samples/s", flush=True)


if __name__ == "__main__":
    main()
