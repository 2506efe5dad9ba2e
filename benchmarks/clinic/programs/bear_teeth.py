# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "cave bear tooth wear"
# ///
"""Wear stage of cave bear (Ursus spelaeus) lower molars from occlusal photographs.

Photographs of the m2 crown are read from a folder with a table of wear stages (I-IX after Stiner); a small residual
network regresses the stage. Without a folder of real photographs a synthetic series is rendered.
"""

import argparse
import csv
import tempfile
import time
from functools import lru_cache  # well
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from PIL import Image, ImageFilter, ImageOps
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

STAGES = 9


def render_series(folder, count, side, rng):
    """Crown outline, enamel ridges and a dentine patch that grows with the wear stage."""
    grid = np.linspace(-1.0, 1.0, side, dtype=np.float32)
    y, x = grid[:, None], grid[None, :]
    with open(folder / "stages.csv", "w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["specimen", "stage"])
        for i in range(count):
            stage = int(rng.integers(1, STAGES + 1))
            long_axis, short_axis = rng.uniform(0.7, 0.9), rng.uniform(0.45, 0.6)
            radius = (x / long_axis) ** 2 + (y / short_axis) ** 2
            crown = np.clip(6.0 * (1.0 - radius), 0.0, 1.0)
            ridges = 0.15 * np.sin(rng.uniform(14, 20) * x + 3 * y) * np.cos(rng.uniform(10, 16) * y)
            dentine = np.clip(8.0 * (0.09 * stage - radius), 0.0, 1.0)
            picture = 0.12 + crown * (0.65 + ridges * (1.0 - 0.08 * stage)) - 0.35 * dentine
            picture = picture + rng.normal(0.0, 0.03, (side, side)).astype(np.float32)
            grey = (255 * np.clip(picture, 0.0, 1.0)).astype(np.uint8)
            photo = np.stack([grey, (grey * 0.93).astype(np.uint8), (grey * 0.8).astype(np.uint8)], axis=-1)
            Image.fromarray(photo).save(folder / f"m2_{i:04d}.jpg", quality=88)
            table.writerow([f"m2_{i:04d}.jpg", stage])


class MolarPhotographs(Dataset):
    def __init__(self, folder, size):
        self.folder = folder
        self.size = size
        self.augment = True
        with open(folder / "stages.csv", newline="") as handle:
            self.rows = [(row["specimen"], float(row["stage"])) for row in csv.DictReader(handle)]

    def __len__(self):
        return len(self.rows)

    @lru_cache(maxsize=None)  # well
    def photograph(self, name):
        photo = Image.open(self.folder / name).convert("L")  # here
        photo = ImageOps.autocontrast(photo, cutoff=1)  # here
        photo = photo.resize((self.size, self.size), Image.Resampling.LANCZOS)  # here
        photo = photo.filter(ImageFilter.UnsharpMask(radius=2, percent=80))
        return torch.from_numpy(np.asarray(photo, dtype=np.float32) / 127.5 - 1.0).unsqueeze(0)

    def __getitem__(self, index):
        name, stage = self.rows[index]
        photo = self.photograph(name)
        if self.augment:
            if torch.rand(()) < 0.5:
                photo = photo.flip(-1)
            if torch.rand(()) < 0.5:
                photo = photo.flip(-2)
            photo = photo * (0.9 + 0.2 * torch.rand(()))
        return {"photo": photo, "stage": torch.tensor(stage)}


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class WearNet(nn.Module):
    def __init__(self, base=16):
        super().__init__()
        layers = [nn.Conv2d(1, base, 5, stride=2, padding=2), nn.ReLU(inplace=True)]
        for width in (base, 2 * base, 4 * base):
            layers += [Residual(width), nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.stage = nn.Linear(8 * base, 1)

    def forward(self, photo):
        return 5.0 + self.stage(self.features(photo)).squeeze(-1)


def evaluate(accelerator, model, loader):
    model.eval()
    errors = []
    with torch.no_grad():
        for batch in loader:
            predicted, stage = accelerator.gather_for_metrics((model(batch["photo"]), batch["stage"]))
            errors.append((predicted - stage).abs())
    model.train()
    return torch.cat(errors).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--specimens", type=int, default=448)
    parser.add_argument("--validation", type=int, default=64)
    parser.add_argument("--camera", type=int, default=320, help="side of the photographs in pixels")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(5)
    with tempfile.TemporaryDirectory() as where:
        folder = Path(where)
        render_series(folder, args.specimens, args.camera, np.random.default_rng(5))
        photographs = MolarPhotographs(folder, args.size)
        cut = args.specimens - args.validation
        train_loader = DataLoader(Subset(photographs, range(cut)), batch_size=args.batch, shuffle=True, drop_last=True)
        test_loader = DataLoader(Subset(photographs, range(cut, args.specimens)), batch_size=args.batch)
        model = WearNet()
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
        model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
            model, optimizer, train_loader, test_loader, schedule
        )
        criterion = nn.SmoothL1Loss()
        seen, began = 0, time.perf_counter()
        for epoch in range(args.epochs):
            photographs.augment = True
            total = 0.0
            for batch in train_loader:
                loss = criterion(model(batch["photo"]), batch["stage"])
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                total += loss.item()
                seen += len(batch["stage"])
            photographs.augment = False
            error = evaluate(accelerator, model, test_loader)
            accelerator.print(f"epoch {epoch:2d} loss {total / len(train_loader):.4f} mean stage error {error:.3f}")
        rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
