# /// clinic
# expect = ["PD10.weights-by-row"]
# stratum = "twins"
# domain = "molecules as graphs"
# ///
"""Regression of a solvation energy from molecular graphs with relational message passing."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_ELEMENTS = 10
N_BONDS = 4


class Molecules(Dataset):
    """Random tree-like molecules with a few ring closures."""

    def __init__(self, count, seed):
        gen = torch.Generator().manual_seed(seed)
        charge = torch.linspace(-1, 1, N_ELEMENTS)
        strength = torch.tensor([1.0, 1.6, 2.1, 1.3])
        self.items = []
        sizes = torch.randint(14, 33, (count,), generator=gen).tolist()
        for n in sizes:
            atoms = torch.randint(N_ELEMENTS, (n,), generator=gen)
            child = torch.arange(1, n)
            back = torch.randint(1, 4, (n - 1,), generator=gen)
            rings = torch.randint(n, (2, 3), generator=gen)
            a = torch.cat([child, rings[0]])
            b = torch.cat([(child - back).clamp(min=0), rings[1]])
            bond = torch.randint(N_BONDS, (len(a),), generator=gen)
            energy = (charge[atoms[a]] * charge[atoms[b]] * strength[bond]).sum() + charge[atoms].sum() * 0.3
            edges = torch.stack([torch.cat([a, b]), torch.cat([b, a])])
            self.items.append((atoms, edges, bond.repeat(2), energy))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    sizes = torch.tensor([len(atoms) for atoms, *_ in items])
    counts = torch.tensor([len(bond) for _, _, bond, _ in items])
    offsets = sizes.cumsum(0) - sizes
    return {
        "atoms": torch.cat([x[0] for x in items]),
        "edges": torch.cat([x[1] for x in items], 1) + offsets.repeat_interleave(counts),
        "bonds": torch.cat([x[2] for x in items]),
        "owner": torch.arange(len(items)).repeat_interleave(sizes),
        "sizes": sizes,
        "energy": torch.stack([x[3] for x in items]),
    }


class RelationalConv(nn.Module):
    """Sum over the neighbours of W[bond] h, with one matrix for each type of bond."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(N_BONDS, width, width) / width**0.5)
        self.root = nn.Linear(width, width)

    def forward(self, h, edges, bonds):
        source, target = edges
        weight = self.weight[bonds]  # sick here
        message = torch.bmm(h[source].unsqueeze(1), weight).squeeze(1)  # sick
        by_bond = h @ self.weight  # well
        message = by_bond.flatten(0, 1)[bonds * len(h) + source]  # well
        return self.root(h).index_add(0, target, message)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm_conv = nn.LayerNorm(width)
        self.conv = RelationalConv(width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))

    def forward(self, h, edges, bonds):
        h = h + self.conv(self.norm_conv(h), edges, bonds)
        return h + self.mlp(self.norm_mlp(h))


class SolvationNet(nn.Module):
    def __init__(self, width=32, hidden=256, depth=3):
        super().__init__()
        self.embed = nn.Embedding(N_ELEMENTS, width)
        self.blocks = nn.ModuleList(Block(width, hidden) for _ in range(depth))
        self.readout = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, 1))

    def forward(self, batch):
        h = self.embed(batch["atoms"])
        for block in self.blocks:
            h = block(h, batch["edges"], batch["bonds"])
        atomwise = self.readout(h).squeeze(1)
        return torch.zeros(len(batch["sizes"])).index_add(0, batch["owner"], atomwise)


@torch.no_grad()
def mean_error(model, loader):
    model.eval()
    total = sum((model(batch) - batch["energy"]).abs().sum().item() for batch in loader)
    model.train()
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--molecules", type=int, default=4096)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    train = DataLoader(
        Molecules(args.molecules, seed=1), batch_size=args.batch_size, shuffle=True, drop_last=True, collate_fn=collate
    )
    valid = DataLoader(Molecules(512, seed=2), batch_size=128, collate_fn=collate)

    model = SolvationNet(args.width, args.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(train))

    step, started = 0, None
    for epoch in range(args.epochs):
        losses = []
        for batch in train:
            loss = F.smooth_l1_loss(model(batch), batch["energy"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            step += 1
            if step == 5:
                started = time.perf_counter()
        if (epoch + 1) % 4 == 0:
            print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.4f}, valid MAE {mean_error(model, valid):.4f}")
    torch.save({"model": model.state_dict(), "args": vars(args)}, "solvation.pt")
    print(f"{(step - 5) / (time.perf_counter() - started):.3f} steps/s")


if __name__ == "__main__":
    main()
