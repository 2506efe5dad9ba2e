# /// clinic
# expect = ["PD13.too-many-threads"]
# stratum = "twins"
# domain = "glow-worm flashes"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Contrastive embedding of glow-worm and firefly light curves (photomultiplier, 64 Hz), trained with DDP.

    torchrun --nproc-per-node N train.py

Two augmented views of each recording are pulled together; a nearest-centroid test on held-out recordings tells
whether the embedding separates the species.
"""

import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

CFG = {
    "recordings": 6144,
    "held_out": 512,
    "samples": 256,
    "batch_per_rank": 48,
    "epochs": 4,
    "lr": 2e-3,
    "temperature": 0.2,
    "seed": 41,
}
# species: (pulse rate in Hz, pulse width in s, glow level, pulses in a train)
SPECIES = {
    "lampyris_noctiluca": (0.0, 0.60, 1.0, 1),
    "lamprohiza_splendidula": (0.3, 0.90, 0.5, 1),
    "luciola_italica": (1.3, 0.10, 0.0, 1),
    "photinus_pyralis": (0.2, 0.45, 0.0, 1),
    "photinus_consimilis": (0.7, 0.08, 0.0, 5),
    "phosphaenus_hemipterus": (0.0, 0.30, 0.3, 1),
}


def record(count, samples, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(samples, dtype=np.float32)[None] / 64.0
    table = np.array(list(SPECIES.values()), dtype=np.float32)
    species = rng.integers(len(table), size=count)
    rate, width, glow, train = (table[species][:, k : k + 1] for k in range(4))
    width = width * rng.uniform(0.8, 1.25, (count, 1)).astype(np.float32)
    start = rng.uniform(0.0, 1.0, (count, 1)).astype(np.float32)
    light = glow * (1.0 + 0.15 * np.sin(2 * np.pi * 0.4 * t + 6.28 * start))
    for k in range(5):
        period = 1.0 / np.maximum(rate, 0.05)
        offset = np.mod(t - start * period - k * 2.4 * width, period)
        light += (k < train) * (rate > 0) * np.exp(-0.5 * ((offset - 2 * width) / (0.5 * width)) ** 2)
    moon = rng.uniform(0.0, 0.3, (count, 1)).astype(np.float32)
    light = light + moon + rng.normal(0, 0.12, (count, samples)).astype(np.float32)
    return torch.from_numpy(light.astype(np.float32)).unsqueeze(1), torch.from_numpy(species)


def view(light):
    """A random view: shifted in time, dimmed by grass, over another background, a part hidden."""
    n, _, length = light.shape
    shift = torch.randint(0, length, (n, 1))
    index = (torch.arange(length).unsqueeze(0) + shift) % length
    out = light.squeeze(1).gather(1, index)
    out = out * torch.empty(n, 1).uniform_(0.5, 1.5) + torch.empty(n, 1).uniform_(-0.2, 0.2)
    out = out + 0.05 * torch.randn_like(out)
    at = torch.randint(0, length - 32, (n, 1))
    grid = torch.arange(length).unsqueeze(0)
    return out.masked_fill((grid >= at) & (grid < at + 32), 0.0).unsqueeze(1)


class Unit(nn.Sequential):
    def __init__(self, c_in, c_out, kernel=7, stride=2):
        super().__init__(
            nn.Conv1d(c_in, c_out, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm1d(c_out),
            nn.ReLU(),
        )


class Lantern(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.trunk = nn.Sequential(Unit(1, 32), Unit(32, 64), Unit(64, 96), Unit(96, 128))
        self.project = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, dim))

    def embed(self, light):
        return self.trunk(light).mean(-1)

    def forward(self, light):
        return F.normalize(self.project(self.embed(light)), dim=-1)


def nt_xent(z, temperature):
    n = len(z) // 2
    logits = z @ z.t() / temperature
    logits = logits.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(logits, partner)


@torch.no_grad()
def separation(model, light, species):
    model.eval()
    z = F.normalize(torch.cat([model.embed(part) for part in light.split(128)]), dim=-1)
    half = len(z) // 2
    centroids = torch.stack([z[:half][species[:half] == s].mean(0) for s in range(len(SPECIES))])
    found = (z[half:] @ F.normalize(centroids, dim=-1).t()).argmax(1)
    model.train()
    return (found == species[half:]).float().mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(os.cpu_count())  # sick here
    torch.set_num_threads(max(1, os.cpu_count() // world))  # well
    torch.manual_seed(CFG["seed"])

    light, species = record(CFG["recordings"], CFG["samples"], CFG["seed"])
    held_light, held_species = record(CFG["held_out"], CFG["samples"], CFG["seed"] + 1)
    dataset = TensorDataset(light, species)
    sampler = DistributedSampler(dataset, world, rank, shuffle=True, seed=CFG["seed"], drop_last=True)
    loader = DataLoader(dataset, CFG["batch_per_rank"], sampler=sampler, drop_last=True)

    lantern = Lantern()
    model = DistributedDataParallel(lantern)
    optimizer = torch.optim.SGD(model.parameters(), lr=CFG["lr"] * 10, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, CFG["epochs"] * len(loader))
    torch.manual_seed(CFG["seed"] + 100 + rank)

    dist.barrier()
    began, seen = time.perf_counter(), 0
    for epoch in range(CFG["epochs"]):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for recording, _ in loader:
            z = model(torch.cat([view(recording), view(recording)]))
            loss = nt_xent(z, CFG["temperature"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
            seen += world * len(recording)
        score = separation(lantern, held_light, held_species)
        summary = torch.stack([total / len(loader), score])
        dist.all_reduce(summary)
        if rank == 0:
            loss, score = (summary / world).tolist()
            print(f"epoch {epoch} loss {loss:.3f} nearest centroid {score:.3f}", flush=True)
    rate = seen / (time.perf_counter() - began)

    if rank == 0:
        torch.save(lantern.state_dict(), "lantern.pt")
        print(f"{rate:.1f} recordings/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
