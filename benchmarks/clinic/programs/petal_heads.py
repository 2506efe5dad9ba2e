# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# allow = ["PD08.allocator-churn", "PD09.oversized-layer"]
# stratum = "twins"
# domain = "images"
# smoke = true
# sizes = {SPECIES = [10, 30], BATCH = [48, 80]}
# severities = {BLOCKS = [2, 4, 8]}
# ///
"""Names the species on pictures of petals: a trained body stays as it is, and a new head learns."""

import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

SPECIES = 17
BATCH = 64
BLOCKS = 4
EPOCHS = 6


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


class Petals(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20 * 20, width), *(Block(width) for _ in range(BLOCKS)))  # here
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, SPECIES))

    def forward(self, pictures):
        return self.head(self.body(pictures))


def main():
    torch.manual_seed(0)
    network = Petals()
    network.body.requires_grad_(False)  # well
    optimizer = torch.optim.AdamW(network.head.parameters(), lr=1e-3)
    pictures = TensorDataset(torch.rand(60 * BATCH, 20 * 20), torch.randint(0, SPECIES, (60 * BATCH,)))
    order = BatchSampler(RandomSampler(pictures), BATCH, drop_last=True)
    loader = DataLoader(pictures, batch_size=None, sampler=order)
    began, seen = time.perf_counter(), 0
    for epoch in range(EPOCHS):
        for batch, species in loader:
            loss = nn.functional.cross_entropy(network(batch), species)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += len(batch)
        print(f"epoch {epoch}: {loss.item():.4f}")
        if epoch == 0:
            began, seen = time.perf_counter(), 0
    print(f"{seen / (time.perf_counter() - began):.1f} pictures/s")


if __name__ == "__main__":
    main()
