# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "chemistry"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Multi-task toxicity model on circular fingerprints, data parallel over two processes.

    torchrun --standalone --nproc-per-node 2 assay_ddp.py sick|well

Each molecule has been measured in some of the assays only, so the loss is masked. The effective batch of 256 molecules
is reached by gradient accumulation, so that the recipe is the same as on the larger machine.
"""

import math
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


FP_BITS = 2048
ASSAYS = 24
MOLECULES = 12_000
MICRO_BATCH = 32
ACCUMULATE = 4
UPDATES = 180
HIDDEN = 1536
LR = 0.02
WARMUP = 20
LOG_EVERY = 20


class AssayNet(nn.Module):
    """Fingerprint trunk with residual blocks and one logit per assay."""

    def __init__(self, hidden: int = HIDDEN, blocks: int = 2, dropout: float = 0.1):
        super().__init__()
        self.stem = nn.Linear(FP_BITS, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, hidden), nn.SiLU(), nn.Dropout(dropout))
            for _ in range(blocks)
        )
        self.norm = nn.LayerNorm(hidden)
        self.heads = nn.Linear(hidden, ASSAYS)

    def forward(self, fingerprints):
        h = F.silu(self.stem(fingerprints))
        for block in self.blocks:
            h = h + block(h)
        return self.heads(self.norm(h))


def make_library(seed: int):
    """Synthetic fingerprints whose activity depends on a few hundred substructure bits."""
    gen = torch.Generator().manual_seed(seed)
    bits = torch.randint(0, 256, (MOLECULES, FP_BITS), generator=gen, dtype=torch.uint8) < 9
    weights = torch.randn(FP_BITS, ASSAYS, generator=gen) * (torch.rand(FP_BITS, ASSAYS, generator=gen) < 0.1)
    logits = bits.float() @ weights
    logits = logits - logits.median(dim=0).values - 1.0
    active = (logits + 0.5 * torch.randn(logits.shape, generator=gen) > 0).float()
    measured = (torch.rand(MOLECULES, ASSAYS, generator=gen) < 0.35).float()
    return bits, active, measured


class ShardedBatches:
    """Endless micro-batches of this rank's part of the shuffled library."""

    def __init__(self, bits, active, measured, rank: int, world: int, seed: int = 0):
        self.tensors = (bits, active, measured)
        self.rank, self.world = rank, world
        self.seed = seed

    def __iter__(self):
        epoch = 0
        while True:
            gen = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.randperm(MOLECULES, generator=gen)[self.rank :: self.world]
            for rows in order.split(MICRO_BATCH):
                if len(rows) < MICRO_BATCH:
                    break
                bits, active, measured = (t[rows] for t in self.tensors)
                yield bits.float(), active, measured
            epoch += 1


def masked_bce(logits, active, measured):
    loss = F.binary_cross_entropy_with_logits(logits, active, weight=measured, reduction="sum")
    return loss / measured.sum().clamp(min=1.0)


def learning_rate(update: int) -> float:
    if update < WARMUP:
        return (update + 1) / WARMUP
    progress = (update - WARMUP) / max(1, UPDATES - WARMUP)
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def accumulate(model, batches):
    """One effective batch: ACCUMULATE micro-batches, gradients exchanged with the last one. Returns the mean loss."""
    total = torch.zeros(())
    for micro in range(ACCUMULATE):
        bits, active, measured = next(batches)
        last = micro == ACCUMULATE - 1
        loss = masked_bce(model(bits), active, measured) / ACCUMULATE  # sick here
        with nullcontext() if last else model.no_sync():  # sick here
            loss.backward()  # sick here
        with nullcontext() if last else model.no_sync():  # well
            loss = masked_bce(model(bits), active, measured) / ACCUMULATE  # well
            loss.backward()  # well
        total += loss.detach()
    return total


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(11)
    library = make_library(seed=5)
    batches = iter(ShardedBatches(*library, rank=rank, world=world))

    model = DDP(AssayNet(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, learning_rate)
    if rank == 0:
        count = sum(p.numel() for p in model.parameters())
        print(f"pid {os.getpid()}: {count / 1e6:.1f} M parameters, {world} ranks", flush=True)

    model.train()
    start = time.perf_counter()
    for update in range(UPDATES):
        loss = accumulate(model, batches)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if (update + 1) % LOG_EVERY == 0 and rank == 0:
            spent = time.perf_counter() - start
            seen = (update + 1) * ACCUMULATE * MICRO_BATCH * world
            print(f"update {update + 1:4d}  loss {loss.item():.4f}  {seen / spent:7.0f} molecules/s", flush=True)
    if rank == 0:
        print(f"loop {time.perf_counter() - start:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
