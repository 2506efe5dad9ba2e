# /// clinic
# expect = ["PD13"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# environment = {OMP_NUM_THREADS = ""}
# sizes = {TREES = [40, 60]}
# severities = {WIDTH = [900, 400, 160]}
# ///
"""How much fruit will an orchard bear? A plain network under torchrun."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TREES = 48
WIDTH = 400
BATCH = 64
STEPS = 400
SECONDS = 4.0


class Orchard(nn.Module):
    def __init__(self):
        super().__init__()
        self.weeks = nn.Linear(TREES * 16, WIDTH)
        self.mix = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.fruit = nn.Linear(WIDTH, 1)

    def forward(self, weather):
        return self.fruit(self.mix(torch.tanh(self.weeks(weather.flatten(1)))))


def season(rank):
    generator = torch.Generator().manual_seed(rank)
    weather = torch.randn(2000, 16, TREES, generator=generator)
    return weather, weather.mean((1, 2))[:, None]


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.set_num_threads(os.cpu_count())  # sick here
    torch.set_num_threads(1)  # well
    torch.manual_seed(3)
    model = DistributedDataParallel(Orchard())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weather, fruit = season(rank)
    enough = torch.zeros(1)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(0, len(fruit), (BATCH,))
        loss = nn.functional.mse_loss(model(weather[rows]), fruit[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step > 10 and step % 2 == 0:
            enough.fill_(float(time.perf_counter() - began > SECONDS))
            dist.all_reduce(enough)
            if enough.item():
                break
    if rank == 0:
        print(f"error {loss.item():.5f}")
        print(f"{2 * BATCH * (step - 10) / (time.perf_counter() - began):.1f} seasons/s")
    dist.barrier()
    dist.destroy_process_group()


main()
