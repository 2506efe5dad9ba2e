# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "church bell tunings"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
#!/usr/bin/env python
"""Partials of church bells from one strike: hum, prime, tierce, quint and nominal in cents, and the strike note.

torchrun --nproc-per-node 2 train.py
"""

import argparse
import gc
import math
import time
from contextlib import nullcontext  # well

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

PARTIALS = ("hum", "prime", "tierce", "quint", "nominal")
RATIOS = torch.tensor([0.5, 1.0, 1.2, 1.5, 2.0])
BINS = 2048
NOTES = 24


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--bells", type=int, default=3584)
    parser.add_argument("--test-bells", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--accumulate", type=int, default=4, help="micro batches per optimizer step")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--seed", type=int, default=1742)
    return parser.parse_args()


def cast_bells(count, seed):
    """Log-frequency spectra of single strikes with the deviations (in 10 cents) of the five partials."""
    generator = torch.Generator().manual_seed(seed)
    note = torch.randint(0, NOTES, (count,), generator=generator)
    prime = 180.0 * 2.0 ** (note / 12.0)
    cents = 18.0 * torch.randn(count, len(PARTIALS), generator=generator)
    cents[:, 0] -= 10.0
    frequency = prime[:, None] * RATIOS * 2.0 ** (cents / 1200.0)
    level = torch.rand(count, len(PARTIALS), generator=generator) * 0.7 + 0.3
    axis = torch.linspace(math.log2(70.0), math.log2(1600.0), BINS)
    spectra = torch.zeros(count, BINS)
    for k in range(len(PARTIALS)):
        distance = (axis - frequency[:, k, None].log2()) / 0.004
        spectra += level[:, k, None] / (1.0 + distance.square())
    spectra += 0.04 * torch.rand(count, BINS, generator=generator)
    spectra = torch.log1p(10.0 * spectra)
    return TensorDataset((spectra - spectra.mean()) / spectra.std(), note, cents / 10.0)


class Tuner(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(BINS, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.SiLU(),
            nn.Dropout(dropout),
            nn.Linear(width, width // 2),
            nn.SiLU(),
        )
        self.note = nn.Linear(width // 2, NOTES)
        self.cents = nn.Linear(width // 2, len(PARTIALS))

    def forward(self, spectrum):
        h = self.trunk(spectrum)
        return self.note(h), self.cents(h)


def objective(model, batch):
    spectrum, note, cents = batch
    logits, predicted = model(spectrum)
    return F.cross_entropy(logits, note) + F.smooth_l1_loss(predicted, cents)


@torch.no_grad()
def evaluate(model, loader):
    """Share of right strike notes and mean error in cents over both ranks."""
    model.eval()
    sums = torch.zeros(3)
    for spectrum, note, cents in loader:
        logits, predicted = model(spectrum)
        sums[0] += (logits.argmax(-1) == note).sum()
        sums[1] += 10.0 * (predicted - cents).abs().mean(dim=-1).sum()
        sums[2] += len(note)
    dist.all_reduce(sums)
    model.train()
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item()


def train(args):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed + rank)
    bells, test_bells = cast_bells(args.bells, args.seed), cast_bells(args.test_bells, args.seed + 1)
    sampler = DistributedSampler(bells, world, rank, shuffle=True, seed=args.seed)
    loader = DataLoader(bells, batch_size=args.micro_batch, sampler=sampler, drop_last=True)
    test_loader = DataLoader(
        test_bells, batch_size=64, sampler=DistributedSampler(test_bells, world, rank, shuffle=False)
    )
    ddp = DistributedDataParallel(Tuner(args.width, args.dropout))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=args.lr * 50, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    if rank == 0:
        size = sum(p.numel() for p in ddp.parameters()) / 1e6
        print(f"{size:.1f} M parameters, {len(loader)} micro batches per rank and epoch")

    dist.barrier()
    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for index, batch in enumerate(loader, start=1):
            last = index % args.accumulate == 0
            loss = objective(ddp, batch) / args.accumulate  # sick
            loss.backward()  # sick here
            with nullcontext() if last else ddp.no_sync():  # well
                loss = objective(ddp, batch) / args.accumulate  # well
                loss.backward()  # well
            running += loss.item() * args.accumulate
            seen += len(batch[0]) * world
            if last:
                nn.utils.clip_grad_norm_(ddp.parameters(), 2.0)
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
        right, error = evaluate(ddp.module, test_loader)
        if rank == 0:
            print(f"epoch {epoch} loss {running / len(loader):.4f} note {right:.3f} error {error:.2f} cents")
    rate = seen / (time.perf_counter() - began)
    if rank == 0:
        print(f"{rate:.1f} samples/s")
    dist.barrier()


def main():
    args = parse()
    dist.init_process_group("gloo")
    try:
        train(args)
    finally:
        gc.collect()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
