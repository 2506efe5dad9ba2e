# /// clinic
# allow = ["PD08.allocator-churn"]
# stratum = "decoys"
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {WIDTH = [150, 220], BATCH = [220, 300], KEPT = [30000, 45000]}
# ///
"""Wave heights at buoys, by two ranks. The first keeps a sorted history of errors, and the other waits for it."""

import bisect
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 192
BATCH = 256
KEPT = 36000
STEPS = 2000
SECONDS = 5.0


class History:
    """The largest errors so far, in order."""

    def __init__(self):
        self.errors = []

    def add(self, errors):
        for error in errors:
            bisect.insort(self.errors, error)
        self.errors = self.errors[-KEPT:]

    def median(self):
        return self.errors[len(self.errors) // 2]


def soundings(rank):
    generator = torch.Generator().manual_seed(rank)
    spectra = torch.randn(60 * BATCH, 64, generator=generator)
    return spectra, (spectra[:, :8] ** 2).sum(1, keepdim=True).sqrt()


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Linear(64, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU()
    )
    model = DistributedDataParallel(nn.Sequential(net, nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    spectra, heights = soundings(rank)
    history = History()
    enough = torch.zeros(1)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        at = step % 60 * BATCH
        predicted = model(spectra[at : at + BATCH])
        errors = (predicted - heights[at : at + BATCH]).abs()
        loss = errors.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            history.add(errors.detach().flatten().tolist())
        if step > 10 and step % 4 == 0:
            enough.fill_(float(time.perf_counter() - began > SECONDS))
            dist.all_reduce(enough)
            if enough.item():
                break
    if rank == 0:
        print(f"median error {history.median():.4f}, last {loss.item():.4f}")
        print(f"{2 * BATCH * (step - 10) / (time.perf_counter() - began):.1f} soundings/s")
    dist.barrier()
    dist.destroy_process_group()


main()
