# /// clinic
# expect = ["PD03.workers-restarted"]
# stratum = "twins"
# domain = "satellite crop mapping"
# ///
"""Crop type mapping from Sentinel-2 time series: per-pixel segmentation of small patches cut from yearly scenes."""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

CROPS = ["wheat", "maize", "rapeseed", "sugar beet", "potato", "grassland"]
DATES, BANDS, SIDE, PATCH = 8, 6, 256, 32


def make_scene(path, rng):
    """A yearly stack of reflectances (uint16, as delivered) with its parcel map."""
    parcels = rng.integers(0, len(CROPS), (SIDE // 16, SIDE // 16)).repeat(16, 0).repeat(16, 1)
    season = np.linspace(0, np.pi, DATES)[:, None, None]
    green = np.sin(season + parcels * 0.4) ** 2
    stack = np.empty((DATES, BANDS, SIDE, SIDE), np.uint16)
    for band in range(BANDS):
        slope = (band - 2) * 220
        noise = rng.standard_normal((DATES, SIDE, SIDE), dtype=np.float32) * 120
        stack[:, band] = np.clip(1500 + slope * green + noise, 1, 9999)
    clouds = rng.random((DATES, SIDE // 32, SIDE // 32)) < 0.2
    clouds = clouds.repeat(32, 1).repeat(32, 2)
    stack[:, 0][clouds] = 6000
    np.savez_compressed(path, stack=stack, parcels=parcels.astype(np.uint8))


class ParcelPatches(Dataset):
    """Patches of PATCH x PATCH pixels; cloudy dates are filled from their neighbours in time."""

    def __init__(self, paths):
        self.paths = paths
        self.scenes = {}
        self.per_row = SIDE // PATCH
        days = torch.arange(DATES, dtype=torch.float32)
        self.kernel = torch.exp(-((days[:, None] - days[None]) ** 2) / 2)

    def __len__(self):
        return len(self.paths) * self.per_row**2

    def scene(self, number):
        if number not in self.scenes:
            with np.load(self.paths[number]) as archive:
                self.scenes[number] = archive["stack"], archive["parcels"]
        return self.scenes[number]

    def __getitem__(self, index):
        number, cell = divmod(index, self.per_row**2)
        row, column = (PATCH * i for i in divmod(cell, self.per_row))
        stack, parcels = self.scene(number)
        window = np.s_[..., row : row + PATCH, column : column + PATCH]
        x = torch.from_numpy(stack[window].astype(np.float32)) / 10000
        y = torch.from_numpy(parcels[window].astype(np.int64))
        clear = (x[:, :1] < 0.5).float()
        total = torch.einsum("st,tchw->schw", self.kernel, x * clear)
        weight = torch.einsum("st,tchw->schw", self.kernel, clear)
        filled = torch.where(clear.bool(), x, total / weight.clamp_min(1e-6))
        return filled.flatten(0, 1), y


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


class SmallUNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = block(DATES * BANDS, width)
        self.down = nn.Sequential(nn.MaxPool2d(2), block(width, 2 * width), block(2 * width, 2 * width))
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge = block(2 * width, width)
        self.head = nn.Conv2d(width, len(CROPS), 1)

    def forward(self, x):
        fine = self.stem(x)
        coarse = self.up(self.down(fine))
        return self.head(self.merge(torch.cat([fine, coarse], dim=1)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    confusion = torch.zeros(len(CROPS), len(CROPS), dtype=torch.long)
    for x, y in loader:
        guess = model(x).argmax(1)
        confusion += torch.bincount((y * len(CROPS) + guess).flatten(), minlength=len(CROPS) ** 2).view_as(confusion)
    model.train()
    hit = confusion.diag().float()
    iou = hit / (confusion.sum(0) + confusion.sum(1) - hit).clamp_min(1)
    return iou.mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=24)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--eval-every", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    folder = Path("scenes")
    folder.mkdir(exist_ok=True)
    paths = [folder / f"tile_{i:03d}.npz" for i in range(args.scenes)]
    for path in paths:
        make_scene(path, rng)

    train = ParcelPatches(paths[:-1])
    held_out = ParcelPatches(paths[-1:])
    workers = {"num_workers": 2}  # sick
    workers = {"num_workers": 2, "persistent_workers": True}  # well
    loader = DataLoader(train, args.batch_size, shuffle=True, drop_last=True, **workers)
    held_out_loader = DataLoader(held_out, args.batch_size)

    model = SmallUNet(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=args.epochs * len(loader))

    step, start = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for x, y in loader:
            if torch.rand(()) < 0.5:
                x, y = x.flip(-1), y.flip(-1)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step == 5:
                start = time.perf_counter()
        if (epoch + 1) % args.eval_every == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.3f}, held-out mIoU {evaluate(model, held_out_loader):.3f}")

    torch.save(model.state_dict(), "crop_unet.pt")
    print(f"{(step - 5) / (time.perf_counter() - start):.3f} steps/s")


if __name__ == "__main__":
    main()
