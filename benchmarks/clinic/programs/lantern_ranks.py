# /// clinic
# allow = ["PD08.allocator-churn", "PD19.exposed-communication", "PD05", "PD09"]
# stratum = "decoys"
# resembles = ["PD19"]
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {COLOURS = [6, 12], DEPTH = [40, 80]}
# ///
"""Which colour is the lantern? A deep and narrow network on two ranks, searched for unused parameters in little time."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

COLOURS = 8
DEPTH = 80
WIDTH = 24
BATCH = 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, lights):
        return lights + torch.tanh(self.mix(self.norm(lights))) * 0.1


def main(steps=260, warm=40):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(9)
    network = nn.Sequential(nn.Linear(16, WIDTH), *[Block() for _ in range(DEPTH)], nn.Linear(WIDTH, COLOURS))
    model = DistributedDataParallel(network, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    night = torch.Generator().manual_seed(rank)
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        lights = torch.randn(BATCH, 16, generator=night)
        colours = lights[:, :COLOURS].argmax(1)
        loss = nn.functional.cross_entropy(model(lights), colours)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f}")
        print(f"{2 * BATCH * (steps - warm) / (time.perf_counter() - start):.1f} lanterns/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
