"""Two ranks over gloo, under torchrun."""

import gc

import facts
import loops
import torch
import torch.distributed as dist


def train() -> None:
    facts.seed()
    model, _, criterion = loops.setup()
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.01)
    loops.train(parallel, optimizer, criterion, loops.data(), 25)
    if dist.get_rank() == 0:
        print(facts.digest(model.parameters()))
    dist.barrier()


dist.init_process_group("gloo")
train()
# A group that outlives this (DDP holds it, in a cycle) now and then ends the interpreter with SIGABRT, bare too.
gc.collect()
dist.destroy_process_group()
