# /// clinic
# expect = ["PD03"]
# endless = true
# beyond = true
# stratum = "twins"
# domain = "remote sensing, semi-supervised wetland mapping"
# ///
"""Semi-supervised wetland segmentation of river-delta tiles, a few labelled acquisitions and many unlabelled ones."""

import argparse
import tempfile
import time
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, RandomSampler

BANDS, SIDE, CLASSES = 4, 64, 5
SCALE = torch.tensor([3200.0, 3400.0, 3600.0, 5200.0]).view(BANDS, 1, 1)


def write_acquisition(path, tiles, rng):
    """Stand-in for the L2A export: digital numbers as uint16, one archive per overpass."""
    water = rng.random((tiles, 1, SIDE // 8, SIDE // 8)).repeat(8, axis=2).repeat(8, axis=3)
    base = 400 + 2600 * water * np.array([0.5, 0.7, 0.6, 1.6]).reshape(1, BANDS, 1, 1)
    noise = rng.integers(0, 64, (tiles, BANDS, SIDE, SIDE))
    cover = np.clip((water[:, 0] * CLASSES).astype(np.uint8), 0, CLASSES - 1)
    np.savez_compressed(
        path,
        reflectance=(base + noise).astype(np.uint16),
        cover=cover,
        centre=rng.random((tiles, 2)).astype(np.float32),
    )


class Acquisition:
    """One overpass on disk."""

    def __init__(self, path):
        self.path = Path(path)
        self._archive = np.load(self.path)

    def __len__(self):
        return len(self.centres)

    @cached_property
    def centres(self):
        return self._archive["centre"]

    @property  # sick
    @cached_property  # well
    def reflectance(self):
        return self._archive["reflectance"]  # here

    @cached_property
    def cover(self):
        return self._archive["cover"]


class TileSet(Dataset):
    def __init__(self, acquisition):
        self.acquisition = acquisition

    def __len__(self):
        return len(self.acquisition)

    def bands(self, k):
        dn = torch.from_numpy(self.acquisition.reflectance[k].astype(np.float32))  # here
        return dn / SCALE - 0.5

    def __getitem__(self, k):
        return self.bands(k), torch.from_numpy(self.acquisition.cover[k].astype(np.int64))


class TwoViews(Dataset):
    """Weak and strong view of an unlabelled tile."""

    def __init__(self, tiles):
        self.tiles = tiles

    def __len__(self):
        return len(self.tiles)

    def __getitem__(self, k):
        x, _ = self.tiles[k]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        haze = 0.2 * torch.rand(BANDS, 1, 1)
        return x, x * (1 - haze) + haze


def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class WetlandNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = block(BANDS, width)
        self.down1 = block(width, 2 * width, 2)
        self.down2 = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        s0 = self.stem(x)
        s1 = self.down1(s0)
        y = F.relu(self.up1(self.down2(s1)) + s1)
        return self.head(F.relu(self.up2(y) + s0))


def endless(loader):
    while True:
        yield from loader


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=60000)
    ap.add_argument("--labelled", type=int, default=8)
    ap.add_argument("--unlabelled", type=int, default=16)
    ap.add_argument("--confidence", type=float, default=0.8)
    args = ap.parse_args()
    torch.manual_seed(3)
    rng = np.random.default_rng(3)

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"overpass_{n:02d}.npz" for n in range(10)]
        for path in paths:
            write_acquisition(path, 18, rng)
        sets = [TileSet(Acquisition(path)) for path in paths]
        known, unknown = ConcatDataset(sets[:3]), TwoViews(ConcatDataset(sets[3:]))
        labelled = endless(DataLoader(known, args.labelled, sampler=RandomSampler(known, True, 2048)))
        unlabelled = endless(DataLoader(unknown, args.unlabelled, sampler=RandomSampler(unknown, True, 4096)))

        net = WetlandNet()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9, nesterov=True, weight_decay=1e-4)
        since = time.perf_counter()
        for step in range(1, args.steps + 1):
            x, y = next(labelled)
            weak, strong = next(unlabelled)
            with torch.no_grad():
                sure, pseudo = net(weak).softmax(1).max(1)
            out = net(torch.cat([x, strong]))
            loss_known = F.cross_entropy(out[: len(x)], y)
            agree = F.cross_entropy(out[len(x) :], pseudo, reduction="none")
            loss = loss_known + (agree * (sure > args.confidence)).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if step % 25 == 0:
                now = time.perf_counter()
                print(f"step {step:6d}  loss {loss.item():.4f}  {25 / (now - since):.2f} steps/s", flush=True)
                since = now


if __name__ == "__main__":
    main()
