# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "microscopy"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Tells five kinds of cells apart on microscope images, with a head on the laboratory's finished encoder, on two ranks."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SIDE = 64
KINDS = 5
IMAGES = 3072
HELD = 256
BATCH = 32
EPOCHS = 6


def make_cells(count, seed):
    """A bright ring on a grey ground; the kinds differ in radius, width of the ring and granules inside."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, KINDS, count)
    yy, xx = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    centre = rng.uniform(24, 40, (2, count, 1, 1)).astype(np.float32)
    far = np.sqrt((yy - centre[0]) ** 2 + (xx - centre[1]) ** 2)
    radius = (9 + 2.0 * kinds + rng.normal(0, 0.8, count)).astype(np.float32)[:, None, None]
    width = (2 + 0.5 * (kinds % 3)).astype(np.float32)[:, None, None]
    ring = np.exp(-(((far - radius) / width) ** 2))
    granules = (far < radius) * (0.2 + 0.1 * (kinds % 2))[:, None, None].astype(np.float32)
    noise = rng.normal(0, 1, (count, SIDE, SIDE)).astype(np.float32)
    images = ring + granules * noise + 0.3 * rng.permutation(noise)
    return torch.from_numpy(images[:, None].astype(np.float32)), torch.from_numpy(kinds)


def finished_encoder():
    """The encoder of the earlier project, rebuilt from its seed; it stays as it is."""
    with torch.random.fork_rng():
        torch.manual_seed(77)
        layers, before = [], 1
        for after, stride in ((16, 2), (16, 1), (32, 2), (32, 1), (64, 2), (64, 1)):
            conv = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            layers += [conv, nn.BatchNorm2d(after), nn.ReLU()]
            before = after
    return nn.Sequential(*layers).eval()


class CellClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = finished_encoder()  # sick here
        self.encoder = finished_encoder().requires_grad_(False)  # well
        self.head = nn.Sequential(
            nn.Conv2d(64, 96, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(96 * 4 * 4, 64),
            nn.ReLU(),
            nn.Linear(64, KINDS),
        )

    def forward(self, x):
        return self.head(self.encoder(x))


def turned(x):
    """The batch in one of eight positions, drawn anew for every batch."""
    x = torch.rot90(x, int(torch.randint(4, ())), (2, 3))
    if torch.rand(()) < 0.5:
        x = x.flip(3)
    return x.contiguous()


def accuracy(model, images, kinds):
    """Share of this rank's held-out cells that are named rightly, averaged over the ranks."""
    right = torch.zeros(2)
    with torch.no_grad():
        for x, y in zip(images.split(64), kinds.split(64)):
            right[0] += (model(x).argmax(1) == y).sum()
            right[1] += len(y)
    dist.all_reduce(right)
    return (right[0] / right[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    images, kinds = make_cells(IMAGES, seed=1)
    held_images, held_kinds = make_cells(HELD, seed=2)

    network = CellClassifier()
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(network.head.parameters(), lr=5e-4, fused=True)
    criterion = nn.CrossEntropyLoss()
    torch.manual_seed(10 + rank)

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        shuffle = torch.Generator().manual_seed(100 + epoch)
        mine = torch.randperm(IMAGES, generator=shuffle)[rank::world]
        running = torch.zeros(())
        for index in mine.split(BATCH):
            x, y = turned(images[index]), kinds[index]
            model.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            seen += len(index) * world
        if rank == 0:
            print(f"epoch {epoch}: loss {running.item() / (len(mine) // BATCH):.4f}")
    spent = time.perf_counter() - began

    right = accuracy(model, held_images[rank::world], held_kinds[rank::world])
    if rank == 0:
        print(f"held-out cells right: {right:.3f}")
        print(f"{seen / spent:.1f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
