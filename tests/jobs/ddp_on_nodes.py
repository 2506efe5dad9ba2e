"""A rank over gloo under torchrun, with as many steps as told; those of one rank wait 25 ms for their data.

ddp_on_nodes.py STEPS [RANK]
"""

import gc
import sys
import time

import facts
import torch
import torch.distributed as dist

STEPS, SLOW = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1


class Shards(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 8 * STEPS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index % 8 == 0 and dist.get_rank() == SLOW:
            time.sleep(0.025)
        return torch.full((256,), float(index % 7)), index % 10


def train() -> None:
    facts.seed()
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for samples, labels in torch.utils.data.DataLoader(Shards(), batch_size=8):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(samples), labels).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(facts.digest(model.parameters()))
    dist.barrier()


dist.init_process_group("gloo")
train()
# A group that outlives this (DDP holds it, in a cycle) now and then ends the interpreter with SIGABRT, bare too.
gc.collect()
dist.destroy_process_group()
