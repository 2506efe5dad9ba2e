# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "clay pipe stems"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Clay pipe stems: kiln site and date of manufacture from bore, section profile and fabric (ICP) of stem fragments.

    torchrun --nproc-per-node 2 pipe_stems.py

Mixer over four slices of the stem plus a fabric token; batches of 96 fragments are reached by accumulation.
"""

import logging
import math
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

SITES = ("Broseley", "Bristol", "Gouda", "Chester", "Southwark", "Westerwald", "Hull", "Norwich")
SLICES = 4
RAYS = 40  # radii of the outer section in each slice
ELEMENTS = 24
PER_RANK = 12
ACCUMULATE = 4
EPOCHS = 4
FRAGMENTS = 3840
WIDTH = 448
DEPTH = 2
LR = 8e-4
DATES = (1610.0, 1820.0)

logger = logging.getLogger("pipe_stems")


class Stems(Dataset):
    """Synthetic fragments: the bore narrows with the years (Harrington), fabric and finish depend on the kiln."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        world = np.random.default_rng(99)
        fabric = world.normal(0, 1, (len(SITES), ELEMENTS))
        finish = world.normal(0, 1, (len(SITES), 4))
        site = rng.integers(0, len(SITES), count)
        year = rng.uniform(*DATES, count)
        bore = 9.0 - (year - 1590) / 230 * 4.5 + 0.3 * finish[site, 0] + rng.normal(0, 0.3, count)
        along = np.linspace(-1, 1, SLICES)
        angle = np.linspace(0, 2 * np.pi, RAYS, endpoint=False)
        taper = (1 + 0.08 * rng.random(count))[:, None] ** along
        seam = finish[site, 1, None, None] * np.cos(2 * angle) + finish[site, 2, None, None] * np.cos(3 * angle)
        radius = (2.2 + 0.35 * bore[:, None] * taper)[:, :, None] + 0.06 * seam
        radius = radius + rng.normal(0, 0.08, radius.shape)
        hole = (bore[:, None] * taper + rng.normal(0, 0.15, taper.shape))[:, :, None] / 4
        self.profile = torch.tensor(np.concatenate([radius - 4, hole - 1.5], axis=2), dtype=torch.float32)
        elements = fabric[site] + rng.normal(0, 1.6, (count, ELEMENTS))
        self.fabric = torch.tensor(elements, dtype=torch.float32)
        self.site = torch.tensor(site)
        self.year = torch.tensor((year - np.mean(DATES)) / 100, dtype=torch.float32)

    def __len__(self):
        return len(self.site)

    def __getitem__(self, i):
        return self.profile[i], self.fabric[i], self.site[i], self.year[i]


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 4 * tokens), nn.GELU(), nn.Linear(4 * tokens, tokens))
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class StemMixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.slices = nn.Linear(RAYS + 1, WIDTH)
        self.fabric = nn.Sequential(nn.Linear(ELEMENTS, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.Sequential(*[MixerBlock(SLICES + 1, WIDTH) for _ in range(DEPTH)])
        self.pool = nn.Sequential(nn.Flatten(), nn.Linear((SLICES + 1) * WIDTH, 2 * WIDTH), nn.GELU())
        self.site = nn.Linear(2 * WIDTH, len(SITES))
        self.year = nn.Linear(2 * WIDTH, 1)

    def forward(self, profile, fabric):
        tokens = torch.cat([self.slices(profile), self.fabric(fabric)[:, None]], dim=1)
        h = self.pool(self.blocks(tokens))
        return self.site(h), self.year(h)[:, 0]


def criterion(out, site, year):
    return F.cross_entropy(out[0], site, label_smoothing=0.05) + F.huber_loss(out[1], year, delta=0.5)


@torch.no_grad()
def evaluate(net, held, rank, world):
    net.eval()
    mine = torch.arange(rank, len(held), world)
    site, year = net(held.profile[mine], held.fabric[mine])
    right = (site.argmax(1) == held.site[mine]).float().sum()
    gap = (year - held.year[mine]).abs().sum() * 100
    sums = torch.stack([right, gap, torch.tensor(float(len(mine)))])
    dist.all_reduce(sums)
    net.train()
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(name)s: %(message)s")
    torch.manual_seed(5)
    train, held = Stems(FRAGMENTS, 1), Stems(512, 2)
    net = DDP(StemMixer())
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.05)
    sampler = DistributedSampler(train, seed=5)
    loader = DataLoader(train, batch_size=PER_RANK, sampler=sampler, drop_last=True)
    per_epoch = len(loader) // ACCUMULATE
    total = EPOCHS * per_epoch
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda k: min(1, (k + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(1, k / total)))
    )
    logger.info("%d parameters, %d updates", sum(p.numel() for p in net.parameters()), total)
    seen, began = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        running = torch.zeros(())
        batches = iter(loader)
        for _update in range(per_epoch):
            optimizer.zero_grad(set_to_none=True)
            for micro in range(ACCUMULATE):
                profile, fabric, site, year = next(batches)
                net.require_backward_grad_sync = micro == ACCUMULATE - 1  # well
                loss = criterion(net(profile, fabric), site, year) / ACCUMULATE
                loss.backward()  # here
                running += loss.detach()
                seen += len(site) * world
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        accuracy, gap = evaluate(net.module, held, rank, world)
        logger.info("epoch %d loss %.4f site %.3f years off %.1f", epoch, running / per_epoch, accuracy, gap)
        if rank == 0:
            torch.save({"model": net.module.state_dict(), "epoch": epoch}, os.path.join(os.getcwd(), "pipe_stems.pt"))
    took = time.perf_counter() - began
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print(f"{seen / took:.1f} fragments/s")


if __name__ == "__main__":
    main()
