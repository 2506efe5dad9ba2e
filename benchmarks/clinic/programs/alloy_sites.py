# /// clinic
# expect = ["PD10.empty-product"]
# allow = ["PD08.allocator-churn", "PD05.batch-too-small", "PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "materials"
# sizes = {KINDS = [1800, 2400], WIDTH = [160, 224]}
# ///
"""Formation energies of alloys from the kinds of their sites."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = 2000
WIDTH = 192
SITES = 24


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.species = nn.Linear(KINDS, WIDTH, bias=False)
        self.pair = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.SiLU(), nn.Linear(2 * WIDTH, WIDTH))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, kinds):
        sites = self.species(F.one_hot(kinds.flatten(), KINDS).float())  # sick here
        sites = F.embedding(kinds.flatten(), self.species.weight.T)  # well
        sites = sites.view(*kinds.shape, -1)
        return self.out((sites + self.pair(sites)).mean(1)).squeeze(1)


def alloys(count):
    g = torch.Generator().manual_seed(4)
    kinds = torch.randint(KINDS, (count, SITES), generator=g)
    worth = torch.randn(KINDS, generator=g)
    return TensorDataset(kinds, worth[kinds].mean(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(alloys(2400), options.batch, shuffle=True, drop_last=True)
    model = Energy()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    seen = 0
    for epoch in range(options.epochs):
        if epoch == 1:
            began, seen = time.perf_counter(), 0
        for kinds, energy in loader:
            loss = F.mse_loss(model(kinds), energy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(kinds)
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"{seen / (time.perf_counter() - began):.1f} alloys/s")


if __name__ == "__main__":
    main()
