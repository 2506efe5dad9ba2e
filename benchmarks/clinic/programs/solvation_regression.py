# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "chemistry"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Solvation energies of organic molecules with a message-passing network, trained on two ranks.

    torchrun --standalone --nproc-per-node 2 solvation_regression.py [sick|well]

The collection joins a fragment library and a set of drug-like molecules; batches are packed graphs.
"""

import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel


ELEMENTS = 10


class Molecule:
    __slots__ = ("atoms", "bonds", "energy", "lengths")

    def __init__(self, atoms, bonds, lengths, energy):
        self.atoms, self.bonds, self.lengths, self.energy = atoms, bonds, lengths, energy


class Collection:
    """Synthetic stand-in for the curated set: 1500 fragments, then 1500 drug-like molecules."""

    def __init__(self, seed=8):
        gen = torch.Generator().manual_seed(seed)
        self.charges = torch.randn(ELEMENTS, generator=gen)
        sizes = torch.cat([torch.randint(6, 10, (1500,), generator=gen), torch.randint(24, 42, (1500,), generator=gen)])
        self.molecules = [self.grow(size, gen) for size in sizes.tolist()]

    def grow(self, size, gen):
        """A chain with rings: each atom is bonded to the one before it and some to the one five before."""
        atoms = torch.randint(ELEMENTS, (size,), generator=gen)
        chain = torch.stack([torch.arange(size - 1), torch.arange(1, size)])
        ring = torch.stack([torch.arange(0, size - 5, 2), torch.arange(5, size, 2)])
        half = torch.cat([chain, ring], dim=1)
        lengths = 1.2 + 0.4 * torch.rand(half.shape[1], generator=gen)
        charge = self.charges[atoms]
        energy = (charge[half[0]] * charge[half[1]] / lengths).sum() / size**0.5
        return Molecule(atoms, torch.cat([half, half.flip(0)], dim=1), lengths.repeat(2), energy)

    def __len__(self):
        return len(self.molecules)


class RankLoader:
    """This rank's share of the collection, shuffled anew each epoch and packed into batches."""

    def __init__(self, collection, rank, ranks, batch=128):
        count = len(collection) // ranks
        self.share = collection.molecules[rank * count : (rank + 1) * count]  # sick here
        self.share = collection.molecules[rank : count * ranks : ranks]  # well
        self.batch = batch
        self.gen = torch.Generator().manual_seed(100 + rank)

    def __len__(self):
        return len(self.share) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.share), generator=self.gen).tolist()
        for start in range(0, len(self) * self.batch, self.batch):
            yield self.pack([self.share[i] for i in order[start : start + self.batch]])

    @staticmethod
    def pack(molecules):
        sizes = torch.tensor([len(m.atoms) for m in molecules])
        bonds = torch.tensor([len(m.lengths) for m in molecules])
        shift = (sizes.cumsum(0) - sizes).repeat_interleave(bonds)
        owner = torch.arange(len(molecules)).repeat_interleave(sizes)
        return (
            torch.cat([m.atoms for m in molecules]),
            torch.cat([m.bonds for m in molecules], dim=1) + shift,
            torch.cat([m.lengths for m in molecules]),
            owner,
            torch.stack([m.energy for m in molecules]),
        )


def sum_by(values, index, count):
    return values.new_zeros(count, values.shape[1]).scatter_add(0, index[:, None].expand_as(values), values)


class Interaction(nn.Module):
    def __init__(self, width, radial):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(radial, width), nn.SiLU(), nn.Linear(width, width))
        self.send = nn.Linear(width, width, bias=False)
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, bonds, radial):
        here = bonds[0][:, None].expand(-1, nodes.shape[1])
        messages = self.send(nodes).gather(0, here) * self.filter(radial)
        heard = sum_by(messages, bonds[1], len(nodes))
        return nodes + self.update(torch.cat([self.norm(nodes), heard], dim=-1))


class SolvationNet(nn.Module):
    def __init__(self, width=96, layers=4, radial=32):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, width)
        self.register_buffer("centres", torch.linspace(1.0, 1.8, radial))
        self.layers = nn.ModuleList([Interaction(width, radial) for _ in range(layers)])
        self.readout = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, atoms, bonds, lengths, owner, molecules):
        radial = torch.exp(-200.0 * (lengths[:, None] - self.centres) ** 2)
        nodes = self.embed(atoms)
        for layer in self.layers:
            nodes = layer(nodes, bonds, radial)
        per_atom = self.readout(nodes)
        total = sum_by(per_atom, owner, molecules).squeeze(-1)
        return total / torch.bincount(owner, minlength=molecules).sqrt()


def train(epochs=24):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    loader = RankLoader(Collection(), rank, ranks)  # here
    model = DistributedDataParallel(SolvationNet(), broadcast_buffers=False, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    began = time.time()
    for epoch in range(1, epochs + 1):
        error = torch.zeros(())
        for atoms, bonds, lengths, owner, energy in loader:
            loss = F.mse_loss(model(atoms, bonds, lengths, owner, len(energy)), energy)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            error += loss.detach()
        if epoch % 2 == 0:
            dist.all_reduce(error)
            if rank == 0:
                print(
                    f"epoch {epoch:3d}  squared error {error.item() / ranks / len(loader):.4f}  "
                    f"{time.time() - began:.1f} s",
                    flush=True,
                )
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
