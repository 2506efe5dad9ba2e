# /// clinic
# expect = ["PD10.picked-by-index"]
# stratum = "twins"
# domain = "chemistry: molecular energies with a gated graph network"
# ///
"""Solvation energies of drug-like molecules from their contact graphs with a gated graph network."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader


MOLECULES = 2000
BATCH = 64
EPOCHS = 12
WIDTH = 64
LAYERS = 3
ELEMENTS = 12
NEIGHBOURS = 12


def make_molecule(gen):
    """Atoms in space; every atom is linked with its nearest neighbours."""
    atoms = int(torch.randint(22, 45, (1,), generator=gen))
    element = torch.randint(0, ELEMENTS, (atoms,), generator=gen)
    place = torch.randn(atoms, 3, generator=gen) * 2.0
    gap, near = torch.cdist(place, place).topk(NEIGHBOURS + 1, largest=False)
    target = torch.arange(atoms).repeat_interleave(NEIGHBOURS)
    source = near[:, 1:].reshape(-1)
    gap = gap[:, 1:].reshape(-1)
    polar = (element % 4).float() - 1.5
    energy = (polar[source] * polar[target] / (1.0 + gap)).sum() / atoms
    return element, source, target, gap, energy


def join(molecules):
    """One big graph out of many small ones."""
    elements, sources, targets, gaps, energies = zip(*molecules)
    sizes = torch.tensor([len(e) for e in elements])
    start = (sizes.cumsum(0) - sizes).repeat_interleave(sizes * NEIGHBOURS)
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    source, target = torch.cat(sources) + start, torch.cat(targets) + start
    return torch.cat(elements), source, target, torch.cat(gaps), owner, torch.stack(energies)


def at_edges(atoms, end):
    return atoms[end]  # sick here
    return atoms.index_select(0, end)  # well


class GatedLayer(nn.Module):
    """Residual gated graph convolution; bonds carry a state of their own."""

    def __init__(self, width):
        super().__init__()
        self.node = nn.Linear(width, 4 * width)
        self.edge = nn.Linear(width, width)
        self.node_norm = nn.LayerNorm(width)
        self.edge_norm = nn.LayerNorm(width)

    def forward(self, atoms, bonds, source, target):
        own, value, out, into = self.node(self.node_norm(atoms)).chunk(4, 1)
        state = self.edge(self.edge_norm(bonds))
        state = state + at_edges(out, source) + at_edges(into, target)  # here
        gate = torch.sigmoid(state)
        message = gate * at_edges(value, source)  # here
        pooled = torch.zeros_like(own).index_add(0, target, message)
        weight = torch.zeros_like(own).index_add(0, target, gate)
        return atoms + torch.relu(own + pooled / (weight + 1e-6)), bonds + torch.relu(state)


class SolvationNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, WIDTH)
        self.register_buffer("centres", torch.linspace(0.0, 6.0, 16))
        self.distance = nn.Linear(16, WIDTH)
        self.layers = nn.ModuleList(GatedLayer(WIDTH) for _ in range(LAYERS))
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))

    def forward(self, element, source, target, gap, owner, molecules):
        atoms = self.embed(element)
        bonds = self.distance(torch.exp(-(gap[:, None] - self.centres).square() * 2.0))
        for layer in self.layers:
            atoms, bonds = layer(atoms, bonds, source, target)
        score = self.readout(atoms).squeeze(1)
        total = torch.zeros(molecules).index_add(0, owner, score)
        return total / torch.bincount(owner, minlength=molecules)


torch.manual_seed(7)
generator = torch.Generator().manual_seed(7)
library = [make_molecule(generator) for _ in range(MOLECULES)]
loader = DataLoader(library, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=join)

model = SolvationNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
spread = torch.stack([m[-1] for m in library]).std()
print(f"{MOLECULES} molecules, {sum(len(m[0]) for m in library)} atoms, spread {spread:.3f}")

step = 0
begun = time.perf_counter()
for epoch in range(EPOCHS):
    for element, source, target, gap, owner, energy in loader:
        predicted = model(element, source, target, gap, owner, len(energy))
        loss = nn.functional.smooth_l1_loss(predicted / spread, energy / spread)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        step += 1
        if step % 50 == 0:
            print(
                f"epoch {epoch:2d} step {step:4d} loss {loss.item():.4f} {time.perf_counter() - begun:5.1f} s",
                flush=True,
            )
