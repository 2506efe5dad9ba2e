# /// clinic
# expect = ["PD13"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "distributed"
# smoke = true
# environment = {OMP_NUM_THREADS = ""}
# cure = {OMP_NUM_THREADS = "1"}
# sizes = {BERTHS = [30, 60]}
# severities = {WIDTH = [640, 420, 256]}
# ///
"""When will a ship leave the harbour? Two processes, each with half of the ships, started by torch itself."""

import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BERTHS = 44
WIDTH = 420
BATCH = 128
RANKS = 2
SECONDS = 4.0


class Departure(nn.Module):
    def __init__(self):
        super().__init__()
        self.berth = nn.Embedding(BERTHS, 32)
        self.net = nn.Sequential(
            nn.Linear(32 + 20, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, WIDTH),
            nn.GELU(),
            nn.Linear(WIDTH, 1),
        )

    def forward(self, berth, cargo):
        return self.net(torch.cat([self.berth(berth), cargo], dim=1)).squeeze(1)


def work(rank, meeting):
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    torch.manual_seed(rank)
    model = DistributedDataParallel(Departure())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    steps, began, late = 0, None, torch.zeros(1)
    while late.item() == 0:
        berth, cargo = torch.randint(0, BERTHS, (BATCH,)), torch.randn(BATCH, 20)
        loss = nn.functional.mse_loss(model(berth, cargo), cargo[:, 0].abs())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
        if steps == 4:
            began = time.perf_counter()
        if steps % 2 == 0:
            late.fill_(float(began is not None and time.perf_counter() - began > SECONDS))
            dist.all_reduce(late)
    if rank == 0:
        print(f"loss {loss.item():.4f} after {steps} steps")
        print(f"{(steps - 4) * BATCH * RANKS / (time.perf_counter() - began):.1f} ships/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (Path(folder) / "meeting",), nprocs=RANKS)
