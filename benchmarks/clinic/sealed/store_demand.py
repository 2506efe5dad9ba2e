# /// clinic
# expect = ["PD13.too-many-threads"]
# stratum = "twins"
# domain = "time series"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# ///
"""Weekly demand of many stores, trained on two processes (torchrun, gloo)."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

WEEKS, AHEAD = 104, 8


def configure():
    torch.set_num_threads(4)  # sick here
    dist.init_process_group("gloo")
    torch.manual_seed(100 + dist.get_rank())
    return dist.get_rank(), dist.get_world_size()


def stores(count):
    gen = torch.Generator().manual_seed(1)
    week = torch.arange(WEEKS + AHEAD).float()
    season = torch.sin(week * 6.283 / 52 + 6.283 * torch.rand(count, 1, generator=gen))
    trend = 0.01 * torch.randn(count, 1, generator=gen) * week
    noise = 0.3 * torch.randn(count, WEEKS + AHEAD, generator=gen)
    series = 1 + season * torch.rand(count, 1, generator=gen) + trend + noise
    return series[:, :WEEKS], series[:, WEEKS:]


class Demand(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.lift = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(depth))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(depth))
        self.head = nn.Linear(width, AHEAD)

    def forward(self, series):
        x = self.lift(series.unsqueeze(1))
        for layer, norm in zip(self.layers, self.norms):
            x = x + torch.relu(norm(layer(x)))
        return self.head(x[..., -1])


def batches(count, size):
    """The rows this process works on, epoch after epoch."""
    sampler, epoch = DistributedSampler(range(count), shuffle=True, drop_last=True), 0
    while True:
        sampler.set_epoch(epoch)
        rows = torch.tensor(list(sampler))
        yield from (part for part in rows.split(size) if len(part) == size)
        epoch += 1


def main(steps=100, batch=32, skip=8):
    rank, world = configure()
    past, future = stores(4096)
    model = DistributedDataParallel(Demand())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    stream = batches(len(past), batch)
    shown = torch.zeros(())
    for step in range(steps):
        if step == skip:
            dist.barrier()
            start = time.perf_counter()
        rows = next(stream)
        loss = nn.functional.huber_loss(model(past[rows]), future[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        shown += loss.detach()
        if rank == 0 and (step + 1) % 50 == 0:
            print(f"step {step + 1}: {shown.item() / 50:.4f}", flush=True)
            shown.zero_()
    dist.barrier()
    rate = (steps - skip) * batch * world / (time.perf_counter() - start)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} stores/s", flush=True)


if __name__ == "__main__":
    main()
