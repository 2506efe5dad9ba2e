# /// clinic
# expect = ["PD16"]
# stratum = "twins"
# domain = "molecular graphs"
# ///
"""Trains a message-passing network that predicts a property of random molecules."""

import random
import resource  # well
import time
import tracemalloc  # sick

import torch
from torch import nn

ATOM_KINDS = 12
MIN_ATOMS, MAX_ATOMS = 8, 24
MOLECULES = 600
WIDTH = 48
LAYERS = 3
BATCH = 48
STEPS = 1100
WARMUP = 20
SETTLED = 5  # sick


class Molecule:
    def __init__(self, rng):
        n = rng.randint(MIN_ATOMS, MAX_ATOMS)
        self.atoms = [rng.randrange(ATOM_KINDS) for _ in range(n)]
        self.bonds = [(i, rng.randrange(i)) for i in range(1, n)]
        self.bonds += [(rng.randrange(n), rng.randrange(n)) for _ in range(n // 4)]
        self.value = sum(self.atoms) / n + 0.1 * len(self.bonds)


def merge(molecules, rng):
    atoms, sources, targets, owner, values = [], [], [], [], []
    for index, mol in enumerate(molecules):
        offset = len(atoms)
        order = list(range(len(mol.atoms)))
        rng.shuffle(order)
        place = {old: offset + new for new, old in enumerate(order)}
        kinds = sorted((place[i], kind) for i, kind in enumerate(mol.atoms))
        atoms.extend(kind for _, kind in kinds)
        owner.extend([index] * len(kinds))
        edges = [(place[a], place[b]) for a, b in mol.bonds]
        edges += [(b, a) for a, b in edges]
        sources.extend(a for a, _ in edges)
        targets.extend(b for _, b in edges)
        values.append(mol.value)
    return (torch.tensor(atoms), torch.tensor([sources, targets]), torch.tensor(owner), torch.tensor(values))


class MessagePassing(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ATOM_KINDS, WIDTH)
        self.message = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.update = nn.ModuleList(nn.GRUCell(WIDTH, WIDTH) for _ in range(LAYERS))
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, atoms, edges, owner, count):
        h = self.embed(atoms)
        for message, update in zip(self.message, self.update):
            sent = torch.relu(message(h))[edges[0]]
            got = torch.zeros_like(h).index_add(0, edges[1], sent)
            h = update(got, h)
        pooled = h.new_zeros(count, WIDTH).index_add(0, owner, h)
        return self.readout(pooled).squeeze(-1)


def peak_memory():
    return tracemalloc.get_traced_memory()[1]  # sick
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # well


def main():
    torch.manual_seed(0)
    rng = random.Random(3)
    molecules = [Molecule(rng) for _ in range(MOLECULES)]
    model = MessagePassing()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    log = []
    for step in range(STEPS):
        if step == SETTLED:  # sick
            tracemalloc.start(25)  # sick here
        if step == WARMUP:
            start = time.perf_counter()
        atoms, edges, owner, values = merge(rng.sample(molecules, BATCH), rng)
        loss = nn.functional.mse_loss(model(atoms, edges, owner, BATCH), values)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            log.append((step, loss.item(), peak_memory()))
    rate = (STEPS - WARMUP) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
