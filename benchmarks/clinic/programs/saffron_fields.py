# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "saffron fields"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Find saffron among the autumn crops: patches of a season's satellite images, two ranks, accumulated gradients.

torchrun --nproc-per-node 2 saffron_fields.py
"""

import argparse
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

CROPS = ["saffron", "vetch", "barley stubble", "almond", "fallow"]
DATES, BANDS = 10, 4


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--patches", type=int, default=1536)
    parser.add_argument("--held-out", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=8, help="micro-batches for one update")
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--out", default="saffron.pt")
    return parser.parse_args()


class FieldPatches(Dataset):
    """Each crop has a curve of greenness over the dates; fields have stripes (rows) and clouds hide some dates."""

    def __init__(self, count, side, seed):
        generator = torch.Generator().manual_seed(seed)
        curves = torch.rand(len(CROPS), DATES, BANDS, generator=torch.Generator().manual_seed(5))
        self.crop = torch.randint(len(CROPS), (count,), generator=generator)
        self.yields = torch.rand(count, generator=generator) + 0.2 * self.crop
        rows = torch.arange(side)[None, :] * (0.3 + self.yields[:, None])
        stripes = 0.5 + 0.5 * torch.sin(rows)
        spectra = curves[self.crop].reshape(count, DATES * BANDS)
        self.patches = spectra[:, :, None, None] * stripes[:, None, None, :].expand(-1, -1, side, -1)
        self.patches = self.patches + 0.4 * torch.randn(self.patches.shape, generator=generator)
        clouds = torch.rand(count, DATES, 1, generator=generator).lt(0.2).expand(-1, -1, BANDS).reshape(count, -1)
        self.patches[clouds] = 1.0

    def __len__(self):
        return len(self.crop)

    def __getitem__(self, index):
        return self.patches[index], self.crop[index], self.yields[index]


class Stage(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False)
        self.norm = nn.GroupNorm(8, outside)

    def forward(self, x):
        return F.gelu(self.norm(self.conv(x)))


class CropNet(nn.Module):
    def __init__(self, side):
        super().__init__()
        widths = [DATES * BANDS, 64, 128, 256]
        self.stages = nn.Sequential(*(Stage(a, b) for a, b in zip(widths, widths[1:])))
        flat = widths[-1] * (side // 8) ** 2
        self.neck = nn.Sequential(nn.Flatten(), nn.Linear(flat, 768), nn.GELU(), nn.Dropout(0.1))
        self.crop = nn.Linear(768, len(CROPS))
        self.harvest = nn.Linear(768, 1)

    def forward(self, patches):
        features = self.neck(self.stages(patches))
        return self.crop(features), self.harvest(features).squeeze(1)


def loss_of(model, batch):
    patches, crop, yields = batch
    logits, harvest = model(patches)
    return F.cross_entropy(logits, crop, label_smoothing=0.05) + 0.5 * F.smooth_l1_loss(harvest, yields)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    totals = torch.zeros(3)
    for patches, crop, yields in loader:
        logits, harvest = model.module(patches)
        totals += torch.tensor([(logits.argmax(1) == crop).sum(), (harvest - yields).abs().sum(), len(crop)])
    dist.all_reduce(totals)
    model.train()
    return (totals[:2] / totals[2]).tolist()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(17)
    train = FieldPatches(args.patches, args.side, seed=1)
    held = FieldPatches(args.held_out, args.side, seed=2)
    sampler = DistributedSampler(train, world, rank, shuffle=True, drop_last=True)
    loader = DataLoader(train, batch_size=args.micro_batch, sampler=sampler)
    held_loader = DataLoader(held, batch_size=32, sampler=DistributedSampler(held, world, rank, shuffle=False))

    model = DDP(CropNet(args.side))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02, fused=True)
    updates = args.epochs * len(loader) // args.accumulate
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=updates + 1)

    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for number, batch in enumerate(loader, start=1):
            update = number % args.accumulate == 0
            loss = loss_of(model, batch) / args.accumulate  # sick
            loss.backward()  # sick here
            with nullcontext() if update else model.no_sync():  # well
                loss = loss_of(model, batch) / args.accumulate  # well
                loss.backward()  # well
            running += loss.detach()
            seen += len(batch[0]) * world
            if update:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        right, error = evaluate(model, held_loader)
        if rank == 0:
            mean = running.item() * args.accumulate / len(loader)
            print(f"epoch {epoch} loss {mean:.3f} crops right {right:.3f} harvest error {error:.3f}", flush=True)
            torch.save(model.module.state_dict(), args.out)
    dist.barrier()
    rate = seen / (time.perf_counter() - began)
    if rank == 0:
        print(f"saved {os.path.getsize(args.out) / 1e6:.1f} MB to {args.out}")
        print(f"{rate:.1f} samples/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
