# /// clinic
# expect = ["PD13.second-pool", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "graphs and molecules"
# ///
"""Message passing on conformers of small molecules: regress a formation energy from atoms and positions."""

import time

import numpy as np
import torch
import torch.nn as nn
from scipy.spatial import cKDTree
from torch.utils.data import DataLoader, Dataset


CUTOFF = 3.0
NUM_RBF = 24
PE_DIM = 8
HIDDEN = 96
LAYERS = 4
BATCH = 24
EPOCHS = 10
NUM_MOLECULES = 720


def random_conformer(rng):
    """A self-avoiding chain with branches, heavy atoms at about one bond length."""
    n = int(rng.integers(30, 56))
    pos = np.zeros((n, 3))
    for i in range(1, n):
        parent = max(0, i - 1 - int(rng.integers(0, 3)))
        step = rng.standard_normal(3)
        pos[i] = pos[parent] + 1.45 * step / np.linalg.norm(step)
    return {"z": rng.choice(5, n, p=[0.55, 0.2, 0.15, 0.06, 0.04]), "pos": pos}


class NeighbourGraph:
    """Edges within a cutoff, with radial basis features."""

    def __init__(self, cutoff, num_rbf):
        self.cutoff = cutoff
        self.centers = np.linspace(0.0, cutoff, num_rbf)
        self.gamma = (num_rbf / cutoff) ** 2

    def __call__(self, mol):
        pairs = cKDTree(mol["pos"]).query_pairs(self.cutoff, output_type="ndarray")
        edges = np.concatenate([pairs, pairs[:, ::-1]]).T
        dist = np.linalg.norm(mol["pos"][edges[0]] - mol["pos"][edges[1]], axis=1)
        rbf = np.exp(-self.gamma * (dist[:, None] - self.centers) ** 2)
        envelope = 0.5 * (np.cos(np.pi * dist / self.cutoff) + 1.0)
        return {**mol, "edges": edges, "rbf": (rbf * envelope[:, None]).astype(np.float32)}


class LaplacianEncoding:
    """Smallest non-trivial eigenvectors of the normalized Laplacian, signs fixed by the largest entry."""

    def __init__(self, k):
        self.k = k

    def __call__(self, mol):
        n = len(mol["z"])
        adjacency = np.zeros((n, n))
        adjacency[mol["edges"][0], mol["edges"][1]] = 1.0
        scale = 1.0 / np.sqrt(np.maximum(adjacency.sum(1), 1.0))
        _, vectors = np.linalg.eigh(np.eye(n) - scale[:, None] * adjacency * scale[None])
        vectors = vectors[:, 1 : self.k + 1]
        top = np.abs(vectors).argmax(0)
        vectors = vectors * np.sign(vectors[top, np.arange(self.k)])
        return {**mol, "pe": vectors.astype(np.float32)}


class ToTensors:
    def __call__(self, mol):
        return {key: torch.from_numpy(np.ascontiguousarray(value)) for key, value in mol.items()}


class Compose:
    def __init__(self, *steps):
        self.steps = steps

    def __call__(self, mol):
        for step in self.steps:
            mol = step(mol)
        return mol


class Conformers(Dataset):
    def __init__(self, count, transform=None, pre_transform=None, seed=0):
        rng = np.random.default_rng(seed)
        self.molecules = [random_conformer(rng) for _ in range(count)]
        counts = np.stack([np.bincount(m["z"], minlength=5) for m in self.molecules])
        spread = np.array([m["pos"].std() for m in self.molecules])
        energy = counts @ np.array([-1.0, -1.7, -2.1, -0.6, -2.9]) + 0.8 * spread
        self.energy = torch.tensor((energy - energy.mean()) / energy.std(), dtype=torch.float32)
        self.transform = transform
        if pre_transform is not None:
            self.molecules = [pre_transform(m) for m in self.molecules]

    def __len__(self):
        return len(self.molecules)

    def __getitem__(self, index):
        mol = self.molecules[index]
        if self.transform is not None:
            mol = self.transform(mol)  # here
        return mol, self.energy[index]


def collate(samples):
    mols, energy = zip(*samples)
    sizes = torch.tensor([len(m["z"]) for m in mols])
    offsets = torch.cumsum(sizes, 0) - sizes
    return {
        "z": torch.cat([m["z"] for m in mols]),
        "pe": torch.cat([m["pe"] for m in mols]),
        "rbf": torch.cat([m["rbf"] for m in mols]),
        "edges": torch.cat([m["edges"] + o for m, o in zip(mols, offsets)], dim=1),
        "graph": torch.repeat_interleave(torch.arange(len(mols)), sizes),
    }, torch.stack(energy)


class Interaction(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(NUM_RBF, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.lift = nn.Linear(dim, dim, bias=False)
        self.update = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, edges, rbf):
        messages = self.lift(h).index_select(0, edges[1]) * self.filter(rbf)
        return h + self.update(torch.zeros_like(h).index_add(0, edges[0], messages))


class EnergyModel(nn.Module):
    def __init__(self, dim=HIDDEN):
        super().__init__()
        self.embed = nn.Embedding(5, dim)
        self.position = nn.Linear(PE_DIM, dim)
        self.layers = nn.ModuleList([Interaction(dim) for _ in range(LAYERS)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, batch, num_graphs):
        h = self.embed(batch["z"]) + self.position(batch["pe"])
        for layer in self.layers:
            h = layer(h, batch["edges"], batch["rbf"])
        atomic = self.readout(h).squeeze(-1)
        return torch.zeros(num_graphs).index_add(0, batch["graph"], atomic)


def main():
    torch.manual_seed(0)
    featurize = Compose(NeighbourGraph(CUTOFF, NUM_RBF), LaplacianEncoding(PE_DIM), ToTensors())  # here
    dataset = Conformers(NUM_MOLECULES, transform=featurize)  # sick here
    dataset = Conformers(NUM_MOLECULES, pre_transform=featurize)  # well
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, collate_fn=collate)
    model = EnergyModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    start = time.time()
    for epoch in range(1, EPOCHS + 1):
        total = torch.zeros(())
        for batch, energy in loader:
            loss = nn.functional.smooth_l1_loss(model(batch, len(energy)), energy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch:2d}  loss {total.item() / len(loader):.4f}  {time.time() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
