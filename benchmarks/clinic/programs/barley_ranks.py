# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# allow = ["PD08.allocator-churn", "PD19.exposed-communication", "PD05"]
# stratum = "twins"
# smoke = true
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {FIELDS = [40, 70]}
# severities = {WIDTH = [320, 480, 640]}
# ///
"""What will a field of barley yield? Two ranks, four batches to an update."""

import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FIELDS = 48
WIDTH = 480
BATCH = 32
PARTS = 4


def main(updates=240, warm=30):
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(2)
    hidden = [layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FIELDS, WIDTH), nn.ReLU(), *hidden, nn.Linear(WIDTH, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weather = torch.Generator().manual_seed(rank)
    for update in range(updates):
        if update == warm:
            start = time.perf_counter()
        optimizer.zero_grad()
        for part in range(PARTS):
            seen = torch.randn(BATCH, FIELDS, generator=weather)
            yields = seen[:, :6].relu().sum(1, keepdim=True)
            waits = nullcontext()  # sick
            waits = nullcontext() if part == PARTS - 1 else model.no_sync()  # well
            with waits:
                loss = nn.functional.mse_loss(model(seen), yields) / PARTS
                loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"loss {loss.item():.4f}")
        print(f"{2 * PARTS * BATCH * (updates - warm) / (time.perf_counter() - start):.1f} fields/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
