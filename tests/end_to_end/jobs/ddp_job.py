"""A DDP job on the CPU: `ddp_job.py STEPS`, 0 for no end; `ddp_job.py STEPS MS`: rank 1 is late by as much;
`ddp_job.py STEPS MS node`: all ranks of node 1 are."""

import os
import sys
import time

import tiny
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
network = tiny.network(width=128, depth=24)
number = int(os.environ["GROUP_RANK"]) if len(sys.argv) > 3 else dist.get_rank()
if len(sys.argv) > 2 and number == 1:
    network[24].register_full_backward_hook(lambda *_: time.sleep(float(sys.argv[2]) / 1000))
model = DistributedDataParallel(network)
tiny.train(
    int(sys.argv[1]) or 10**9,
    tiny.batches(1280, 128, batch_size=64),
    model,
    torch.optim.SGD(model.parameters(), lr=0.01),
    nn.CrossEntropyLoss(),
)
# One write: both ranks share the stream, and print() may be cut in two.
os.write(1, f"done {os.environ['RANK']}\n".encode())
dist.destroy_process_group()
