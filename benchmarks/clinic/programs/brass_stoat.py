# /// clinic
# expect = ["PD03.per-sample-indexing"]
# stratum = "twins"
# domain = "e-commerce"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Trains a model of which shown products get clicked in a web shop, on two ranks."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler  # well
from torch.utils.data import DataLoader, Dataset, DistributedSampler

CUSTOMERS = 4000
PRODUCTS = 2000
GROUPS = 50
NUMBERS = 24
ROWS = 160_000
HELD = 8192
BATCH = 256
EPOCHS = 4


class Impressions(Dataset):
    """Shown products: who saw what, numbers that describe the visit, and whether it was clicked."""

    def __init__(self, rows, seed, taste_seed=0):
        taste = np.random.default_rng(taste_seed)
        likes = taste.normal(0, 1, (CUSTOMERS, 8)).astype(np.float32)
        traits = taste.normal(0, 1, (PRODUCTS, 8)).astype(np.float32)
        group_of = taste.integers(0, GROUPS, PRODUCTS)
        weights = taste.normal(0, 0.5, NUMBERS).astype(np.float32)

        rng = np.random.default_rng(seed)
        customer = rng.integers(0, CUSTOMERS, rows)
        product = rng.integers(0, PRODUCTS, rows)
        numbers = rng.normal(0, 1, (rows, NUMBERS)).astype(np.float32)
        score = (likes[customer] * traits[product]).sum(1) * 0.4 + numbers @ weights - 0.5
        clicked = rng.random(rows) < 1 / (1 + np.exp(-score))

        self.customer = torch.from_numpy(customer)
        self.product = torch.from_numpy(product)
        self.group = torch.from_numpy(group_of[product])
        self.numbers = torch.from_numpy(numbers)
        self.clicked = torch.from_numpy(clicked.astype(np.float32))

    def __len__(self):
        return len(self.clicked)

    def __getitem__(self, index):
        return (self.customer[index], self.product[index], self.group[index], self.numbers[index], self.clicked[index])


class ClickModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.customer = nn.Embedding(CUSTOMERS, 32)
        self.product = nn.Embedding(PRODUCTS, 32)
        self.group = nn.Embedding(GROUPS, 8)
        self.mlp = nn.Sequential(
            nn.Linear(32 + 32 + 8 + NUMBERS, 256),
            nn.ReLU(),
            nn.Linear(256, 128),
            nn.ReLU(),
            nn.Linear(128, 1),
        )

    def forward(self, customer, product, group, numbers):
        parts = [self.customer(customer), self.product(product), self.group(group), numbers]
        return self.mlp(torch.cat(parts, dim=1)).squeeze(1)


def held_loss(model, data, rank, world):
    """Mean loss over the held-out impressions, each rank taking its part of them."""
    model.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for index in torch.arange(rank, len(data), world).split(1024):
            *inputs, clicked = data[index]
            logits = model(*inputs)
            total[0] += nn.functional.binary_cross_entropy_with_logits(logits, clicked, reduction="sum")
            total[1] += len(index)
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    data = Impressions(ROWS, seed=1)
    held = Impressions(HELD, seed=2)
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, shuffle=True, seed=3)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True)  # sick here
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(sampler, BATCH, drop_last=True))  # well

    model = DistributedDataParallel(ClickModel(), gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.BCEWithLogitsLoss()

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        running = torch.zeros(())
        for customer, product, group, numbers, clicked in loader:
            optimizer.zero_grad()
            loss = criterion(model(customer, product, group, numbers), clicked)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            seen += len(clicked) * world
        if rank == 0:
            print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
    spent = time.perf_counter() - began

    loss = held_loss(model, held, rank, world)
    if rank == 0:
        print(f"held-out loss {loss:.4f}")
        print(f"{seen / spent:.1f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
