# /// clinic
# expect = ["PD03.storage", "PD03"]
# allow = ["PD03.transform"]
# stratum = "twins"
# domain = "detection"
# ///
"""Counting and locating products on shelf photographs kept in shards of 64 pictures."""

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SIDE, PER_SHARD, SHARDS = 128, 64, 6


def write_shards(folder):
    rng = np.random.default_rng(9)
    for s in range(SHARDS):
        pictures = rng.random((PER_SHARD, 3, SIDE, SIDE), dtype=np.float32) * 0.3
        boxes = np.zeros((PER_SHARD, 4), dtype=np.float32)
        for i in range(PER_SHARD):
            x, y, w, h = rng.integers(8, 60, size=4)
            pictures[i, :, y : y + h, x : x + w] += 0.6
            boxes[i] = np.array([x, y, w, h]) / SIDE
        np.save(folder / f"pictures_{s:03d}.npy", pictures)
        np.save(folder / f"boxes_{s:03d}.npy", boxes)


class Shelves(Dataset):
    def __init__(self, folder):
        self.folder = Path(folder)

    def __len__(self):
        return SHARDS * PER_SHARD

    def __getitem__(self, index):
        shard, row = divmod(index, PER_SHARD)
        name = self.folder / f"pictures_{shard:03d}.npy"
        pictures = np.load(name)  # sick here
        pictures = np.load(name, mmap_mode="r")  # well
        boxes = np.load(self.folder / f"boxes_{shard:03d}.npy")
        return torch.from_numpy(np.array(pictures[row])), torch.from_numpy(boxes[row])


class BoxNet(nn.Module):
    def __init__(self, w=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, w, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(w, 2 * w, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * w, 4 * w, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(4 * w, 4 * w, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.out = nn.Sequential(nn.Flatten(), nn.Linear(4 * w * (SIDE // 16) ** 2, 4))

    def forward(self, x):
        return self.out(self.features(x)).sigmoid()


def run(folder, batch=16, steps=200, warm=5):
    write_shards(Path(folder))
    torch.manual_seed(0)
    loader = DataLoader(Shelves(folder), batch_size=batch, shuffle=True, drop_last=True)
    net = BoxNet()
    opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    n, t0 = 0, None
    while n < steps:
        for x, y in loader:
            if n == warm:
                t0 = time.perf_counter()
            loss = nn.functional.smooth_l1_loss(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += 1
            if n % 50 == 0:
                print("step", n, "loss", round(loss.item(), 5))
            if n == steps:
                break
    return (steps - warm) * batch / (time.perf_counter() - t0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        rate = run(where)
    print(f"{rate:.1f} pictures/s")
