# /// clinic
# allow = ["PD08.allocator-churn", "PD05", "PD19.exposed-communication"]
# stratum = "decoys"
# resembles = ["PD19"]
# domain = "distributed"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# sizes = {SIGNALS = [40, 60], BATCH = [400, 500]}
# ///
"""Signals of beacons, by two ranks. The first one writes a line to a file and prints now and then."""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIGNALS = 50
BATCH = 450
STEPS, WARM = 300, 20


def main():
    dist.init_process_group("gloo")
    rank = int(os.environ["RANK"])
    torch.manual_seed(4)
    network = nn.Sequential(nn.Linear(SIGNALS, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    beacons = torch.Generator().manual_seed(rank)
    with tempfile.TemporaryFile("w") as log:
        for step in range(STEPS):
            if step == WARM:
                start = time.perf_counter()
            seen = torch.randn(BATCH, SIGNALS, generator=beacons)
            loss = nn.functional.cross_entropy(model(seen), seen[:, :5].argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                log.write(f"{step},{optimizer.param_groups[0]['lr']}\n")
                if step % 50 == 49:
                    print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        print(f"{2 * BATCH * (STEPS - WARM) / (time.perf_counter() - start):.1f} signals/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
