# /// clinic
# expect = ["PD03.per-sample-indexing", "PD03.too-few-workers"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {LINES = [20, 50], BATCH = [500, 700]}
# severities = {WIDTH = [400, 160, 48]}
# ///
"""How late is the tram? Two ranks, each with half of the journeys."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset

LINES = 30
BATCH = 600
WIDTH = 160
EPOCHS = 5


def journeys(count):
    generator = torch.Generator().manual_seed(1)
    facts = torch.randn(count, 12, generator=generator)
    return TensorDataset(torch.randint(0, LINES, (count,), generator=generator), facts, facts[:, :2].sum(1))


class Delay(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Embedding(LINES, 16)
        self.net = nn.Sequential(
            nn.Linear(28, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
        )

    def forward(self, line, facts):
        return self.net(torch.cat([self.line(line), facts], dim=1)).squeeze(1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    data = journeys(2 * 20 * BATCH)
    mine = DistributedSampler(data)
    loader = DataLoader(data, BATCH, sampler=mine, drop_last=True)  # sick here
    loader = DataLoader(data, batch_size=None, sampler=BatchSampler(mine, BATCH, drop_last=True))  # well
    model = DistributedDataParallel(Delay())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(EPOCHS):
        if epoch == 1:
            began = time.perf_counter()
        mine.set_epoch(epoch)
        for line, facts, late in loader:
            loss = nn.functional.mse_loss(model(line, facts), late)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if os.environ["RANK"] == "0":
        print(f"loss {loss.item():.4f}")
        print(f"{(EPOCHS - 1) * 2 * len(loader) * BATCH / (time.perf_counter() - began):.1f} journeys/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
