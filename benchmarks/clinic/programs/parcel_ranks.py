# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "placebo"
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {WIDTH = [380, 520], BATCH = [200, 300]}
# ///
"""Delivery times of parcels, trained by two ranks."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

WIDTH = 448
BATCH = 256
EPOCHS = 8


def parcels(count):
    generator = torch.Generator().manual_seed(0)
    facts = torch.randn(count, 50, generator=generator)
    return TensorDataset(facts, (facts[:, :3].abs().sum(1, keepdim=True)).sqrt())


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(50, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 1),
    )
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    data = parcels(50 * BATCH)
    sampler = DistributedSampler(data, shuffle=True)
    loader = DataLoader(data, sampler=BatchSampler(sampler, BATCH, drop_last=True), batch_size=None)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        if epoch == 1:
            start = time.perf_counter()
        for facts, hours in loader:
            loss = nn.functional.mse_loss(model(facts), hours)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"{(EPOCHS - 1) * 2 * len(loader) * BATCH / (time.perf_counter() - start):.1f} samples/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
