# /// clinic
# allow = ["PD08.allocator-churn", "PD05", "PD19.exposed-communication"]
# stratum = "decoys"
# resembles = ["PD19"]
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {PATCHES = [40, 60], BATCH = [500, 700]}
# ///
"""Patterns of quilts, by two ranks: large batches, a barrier and one mean of the loss at the end of each epoch."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATCHES = 50
BATCH = 600
STEPS, EPOCHS = 40, 8


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(PATCHES, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    quilts = torch.Generator().manual_seed(rank)
    for epoch in range(EPOCHS):
        if epoch == 1:
            start = time.perf_counter()
        total = torch.zeros(1)
        for _ in range(STEPS):
            seen = torch.randn(BATCH, PATCHES, generator=quilts)
            loss = nn.functional.cross_entropy(model(seen), seen[:, :4].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        dist.barrier()
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / STEPS / 2:.4f}", flush=True)
    if rank == 0:
        print(f"{2 * BATCH * STEPS * (EPOCHS - 1) / (time.perf_counter() - start):.1f} quilts/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
