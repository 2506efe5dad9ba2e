# /// clinic
# expect = ["PD13"]
# endless = true
# stratum = "twins"
# domain = "molecules, contrastive fingerprints"
# ///
"""Contrastive embedding of ligands: two fragment-dropped views of a molecule attract, the rest of the batch repels."""

import argparse
import time
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

BITS, FRAGMENTS = 1024, 600


@contextmanager
def serial(n=1):
    """For the many tiny operations of the fragment code."""
    torch.set_num_threads(n)  # sick here
    before = torch.get_num_threads()
    torch.set_num_threads(n)  # well
    try:
        yield
    finally:
        torch.set_num_threads(before)


class FragmentTable:
    """Which hashed substructure bits a fragment switches on."""

    def __init__(self, rng):
        self.bits = [rng.choice(BITS, int(rng.integers(6, 20)), replace=False) for _ in range(FRAGMENTS)]

    def matrix(self):
        with serial():
            rows = torch.zeros(FRAGMENTS + 1, BITS)
            for k, bits in enumerate(self.bits):
                rows[k, torch.from_numpy(bits)] = 1.0
        return rows


class Ligands(Dataset):
    """A molecule is a bag of fragments; ligands of one scaffold share most of them."""

    def __init__(self, count, rng, longest=24):
        scaffolds = rng.integers(0, FRAGMENTS, (200, 14))
        self.bags = np.full((count, longest), FRAGMENTS, dtype=np.int64)
        for n in range(count):
            extra = rng.integers(0, FRAGMENTS, int(rng.integers(2, 10)))
            bag = np.concatenate([scaffolds[n % 200], extra])
            self.bags[n, : len(bag)] = bag
        self.bags = torch.from_numpy(self.bags)
        mass = torch.from_numpy(rng.uniform(12, 90, FRAGMENTS + 1).astype(np.float32))
        mass[-1] = 0
        self.mass = mass[self.bags].sum(1) / 1000

    def __len__(self):
        return len(self.bags)

    def __getitem__(self, k):
        return self.bags[k], self.mass[k]


class TwoConformers:
    """Collate function: drops fragments twice and hashes what is left."""

    def __init__(self, table, drop):
        self.matrix, self.drop = table.matrix(), drop

    def view(self, bags):
        lost = torch.rand(bags.shape) < self.drop
        picked = torch.zeros(len(bags), FRAGMENTS + 1).scatter_(1, bags.masked_fill(lost, FRAGMENTS), 1.0)
        return (picked @ self.matrix).clamp_(max=1)

    def __call__(self, rows):
        bags = torch.stack([b for b, _ in rows])
        return self.view(bags), self.view(bags), torch.stack([m for _, m in rows])


class LigandEncoder(nn.Module):
    def __init__(self, width=448, out=96):
        super().__init__()
        self.enter = nn.Linear(BITS, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            for _ in range(2)
        )
        self.project = nn.Linear(width, out)
        self.weigh = nn.Linear(out, 1)

    def forward(self, bits):
        z = F.silu(self.norm(self.enter(bits)))
        for block in self.blocks:
            z = z + block(z)
        return self.project(z)


def contrast(a, b, temperature):
    a, b = F.normalize(a, dim=1), F.normalize(b, dim=1)
    scores = a @ b.T / temperature
    target = torch.arange(len(a))
    return 0.5 * (F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target))


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--ligands", type=int, default=6400)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--drop", type=float, default=0.25)
    ap.add_argument("--temperature", type=float, default=0.2)
    ap.add_argument("--epochs", type=int, default=3000)
    args = ap.parse_args()
    torch.manual_seed(21)
    rng = np.random.default_rng(21)
    collate = TwoConformers(FragmentTable(rng), args.drop)
    loader = DataLoader(Ligands(args.ligands, rng), args.batch, shuffle=True, drop_last=True, collate_fn=collate)
    model = LigandEncoder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    step, since = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for left, right, mass in loader:
            za, zb = model(torch.cat([left, right])).chunk(2)
            weight = F.mse_loss(model.weigh(za).squeeze(1), mass)
            loss = contrast(za, zb, args.temperature) + 0.1 * weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 100 == 0:
                now = time.perf_counter()
                print(
                    f"epoch {epoch} step {step} loss {loss.item():.3f}  {100 / (now - since):.2f} steps/s", flush=True
                )
                since = now


if __name__ == "__main__":
    main()
