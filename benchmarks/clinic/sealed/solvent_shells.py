# /// clinic
# expect = ["PD19"]
# endless = true
# stratum = "twins"
# domain = "molecular graph networks"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# ///
"""Solvation energies of synthetic clusters with a message-passing network, data parallel over the ranks."""

import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel

ATOMS, CUTOFF, GLOBAL_BATCH = 8, 1.25, 32


class Cluster:
    """One molecule with its shell of solvent: kinds, edges, target energy."""

    def __init__(self, size, generator):
        self.kind = torch.randint(0, ATOMS, (size,), generator=generator)
        pos = torch.randn(size, 3, generator=generator) * size ** (1 / 3) * 0.62
        gap = torch.cdist(pos, pos)
        self.src, self.dst = ((gap < CUTOFF) & (gap > 0)).nonzero(as_tuple=True)
        self.length = gap[self.src, self.dst]
        charge = (self.kind - 3.5) / 4
        self.energy = (charge[self.src] * charge[self.dst] / (0.3 + self.length)).sum() / size

    def __len__(self):
        return len(self.kind)


def library(n, seed):
    g = torch.Generator().manual_seed(seed)
    sizes = (3.4 + 0.75 * torch.randn(n, generator=g)).exp().clamp(6, 260).int().tolist()
    return [Cluster(size, g) for size in sizes]


def collate(clusters):
    """Concatenate the graphs of a batch into one big graph."""
    shift, kind, src, dst, length, owner = 0, [], [], [], [], []
    for i, c in enumerate(clusters):
        kind.append(c.kind)
        src.append(c.src + shift)
        dst.append(c.dst + shift)
        length.append(c.length)
        owner.append(torch.full((len(c),), i))
        shift += len(c)
    energy = torch.stack([c.energy for c in clusters])
    return tuple(map(torch.cat, (kind, src, dst, length, owner))), energy


class SizeSampler:
    """Hands every rank its share of each global batch; members are ordered by size, which keeps runs reproducible."""

    def __init__(self, data, batch, rank, world, seed):
        self.data, self.batch, self.rank, self.world = data, batch, rank, world
        self.generator = torch.Generator().manual_seed(seed)

    def _share(self, members):
        n = len(members) // self.world
        return members[self.rank * n : (self.rank + 1) * n]  # sick here
        return members[self.rank :: self.world]  # well

    def __iter__(self):
        order = torch.randperm(len(self.data), generator=self.generator).tolist()
        for start in range(0, len(order) - self.batch + 1, self.batch):
            members = sorted(order[start : start + self.batch], key=lambda i: (len(self.data[i]), i))
            yield [self.data[i] for i in self._share(members)]


class Interaction(nn.Module):
    def __init__(self, c, basis):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(basis, c), nn.SiLU(), nn.Linear(c, c))
        self.value = nn.Linear(c, c, bias=False)
        self.update = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c))

    def forward(self, h, src, dst, radial):
        message = self.value(h)[src] * self.gate(radial)
        return h + self.update(torch.zeros_like(h).index_add(0, dst, message))


class ShellNet(nn.Module):
    def __init__(self, c=64, depth=3, basis=16):
        super().__init__()
        self.kind = nn.Embedding(ATOMS, c)
        self.register_buffer("centres", torch.linspace(0, CUTOFF, basis))
        self.layers = nn.ModuleList(Interaction(c, basis) for _ in range(depth))
        self.readout = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, 1))

    def forward(self, graph, n):
        kind, src, dst, length, owner = graph
        radial = torch.exp(-30 * (length[:, None] - self.centres) ** 2)
        h = self.kind(kind)
        for layer in self.layers:
            h = layer(h, src, dst, radial)
        per_atom = self.readout(h).squeeze(-1)
        total = torch.zeros(n).index_add(0, owner, per_atom)
        return total / torch.zeros(n).index_add(0, owner, torch.ones_like(per_atom))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    data = library(640, seed=17)
    model = DistributedDataParallel(ShellNet())
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    sampler = SizeSampler(data, GLOBAL_BATCH, rank, world, seed=17)

    step, since, seen = 0, time.time(), torch.zeros(())
    for epoch in range(2000):
        for clusters in sampler:
            graph, energy = collate(clusters)
            loss = nn.functional.smooth_l1_loss(model(graph, len(clusters)), energy)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += loss.detach()
            step += 1
            if step % 60 == 0:
                dist.all_reduce(seen)
                if rank == 0:
                    rate = 60 / (time.time() - since)
                    print(
                        f"epoch {epoch} step {step} loss {seen.item() / 60 / world:.5f} {rate:.2f} steps/s", flush=True
                    )
                since, seen = time.time(), torch.zeros(())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
