# /// clinic
# expect = ["PD13.too-many-threads"]
# stratum = "twins"
# domain = "woodblock print registers"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Estimates the misregister between the key block and a colour block of woodblock prints (shift in x and y, rotation).

torchrun --nproc-per-node 2 train.py
"""

import argparse
import math
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

MAX_SHIFT = 0.08
MAX_TURN = math.radians(3.0)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prints", type=int, default=432)
    parser.add_argument("--size", type=int, default=72)
    parser.add_argument("--batch", type=int, default=6, help="samples per rank")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=1797)
    return parser.parse_args()


def carve(count, size, generator):
    """Key-block lines: thresholded sums of plane waves, which look like wave and robe patterns."""
    axis = torch.linspace(-1, 1, size)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    waves = torch.randn(count, 6, 2, generator=generator) * 7.0
    phase = torch.rand(count, 6, generator=generator) * 2 * math.pi
    field = torch.zeros(count, size, size)
    for k in range(6):
        turn = waves[:, k, 0, None, None] * x + waves[:, k, 1, None, None] * y + phase[:, k, None, None]
        field += torch.sin(turn)
    return field


def pull_prints(count, size, seed):
    """Pairs of a key-block impression and a colour impression laid down with a known misregister."""
    generator = torch.Generator().manual_seed(seed)
    field = carve(count, size, generator)
    key = torch.sigmoid(6 * (0.6 - field.abs()))
    colour = torch.sigmoid(4 * (field - 0.2))
    truth = torch.rand(count, 3, generator=generator) * 2 - 1
    shift, turn = truth[:, :2] * MAX_SHIFT, truth[:, 2] * MAX_TURN
    theta = torch.zeros(count, 2, 3)
    theta[:, 0, 0] = theta[:, 1, 1] = torch.cos(turn)
    theta[:, 0, 1] = -torch.sin(turn)
    theta[:, 1, 0] = torch.sin(turn)
    theta[:, :, 2] = shift
    grid = F.affine_grid(theta, (count, 1, size, size), align_corners=False)
    colour = F.grid_sample(colour[:, None], grid, padding_mode="border", align_corners=False)
    grain = torch.randn(count, 2, 1, size, generator=generator) * 0.05
    sheets = torch.cat([key[:, None], colour], dim=1) + grain
    return TensorDataset(sheets, truth)


class Block(nn.Module):
    def __init__(self, entering, leaving):
        super().__init__()
        self.down = nn.Conv2d(entering, leaving, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(leaving)
        self.same = nn.Conv2d(leaving, leaving, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.norm(self.down(x)))
        return F.relu(x + self.same(x))


class RegisterNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 5, padding=2)
        self.blocks = nn.Sequential(Block(width, 2 * width), Block(2 * width, 3 * width))
        self.head = nn.Sequential(nn.Flatten(), nn.LazyLinear(64), nn.ReLU(), nn.Linear(64, 3))

    def forward(self, sheets):
        h = self.blocks(F.relu(self.stem(sheets)))
        return self.head(F.adaptive_avg_pool2d(h, 5))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    totals = torch.zeros(4)
    for sheets, truth in loader:
        error = (model(sheets) - truth).abs()
        totals[:3] += error.sum(0)
        totals[3] += len(truth)
    dist.all_reduce(totals)
    model.train()
    return totals[:3] / totals[3]


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(os.cpu_count())  # sick here
    torch.set_num_threads(max(1, os.cpu_count() // world))  # well
    torch.manual_seed(args.seed)

    train = pull_prints(args.prints, args.size, args.seed)
    held_out = pull_prints(args.prints // 8, args.size, args.seed + 1)
    sampler = DistributedSampler(train, num_replicas=world, rank=rank, shuffle=True, seed=args.seed)
    loader = DataLoader(train, batch_size=args.batch, sampler=sampler, drop_last=True)
    held_out_sampler = DistributedSampler(held_out, num_replicas=world, rank=rank, shuffle=False)
    held_out_loader = DataLoader(held_out, batch_size=args.batch, sampler=held_out_sampler)

    net = RegisterNet(args.width)
    net(train[0][0][None])
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * len(loader))
    if rank == 0:
        weights = sum(p.numel() for p in net.parameters())
        print(f"{len(train)} prints, {world} ranks, {len(loader)} steps per epoch, {weights} weights", flush=True)

    dist.barrier()
    began = time.perf_counter()
    seen = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = 0.0
        for sheets, truth in loader:
            loss = F.smooth_l1_loss(model(sheets), truth, beta=0.1)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.item()
            seen += len(sheets) * world
        dx, dy, turn = evaluate(net, held_out_loader).tolist()
        if rank == 0:
            print(
                f"epoch {epoch + 1}: loss {running / len(loader):.4f}, held-out error x {dx:.3f} y {dy:.3f} "
                f"turn {turn:.3f} (1 = largest misregister)",
                flush=True,
            )
            torch.save({"model": net.state_dict(), "epoch": epoch}, "registers.pt")
    dist.barrier()
    rate = seen / (time.perf_counter() - began)
    dist.destroy_process_group()
    if rank == 0:
        print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
