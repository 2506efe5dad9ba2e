# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "pelican roost counts"
# ///
"""Estimate the number of pelicans at a roost from aerial photos with a small density-map network.

python train.py --epochs 9 --batch 6
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

PHOTO = (1280, 960)
FRAME = (320, 240)
GRID = (40, 30)


def paint_roost(folder, photos, seed):
    """Writes the survey photos and returns one array of bird positions (in photo pixels) for each of them."""
    rng = np.random.default_rng(seed)
    waters = []
    for _ in range(4):
        coarse = rng.normal(0, 18, (60, 80, 3)) + np.array([70, 98, 105])
        water = Image.fromarray(coarse.clip(0, 255).astype(np.uint8)).resize(PHOTO, Image.BICUBIC)
        ripple = rng.normal(0, 9, (PHOTO[1], PHOTO[0], 1)).astype(np.float32)
        water = np.asarray(water, dtype=np.float32) + ripple
        waters.append(Image.fromarray(water.clip(0, 255).astype(np.uint8)))
    paths, birds = [], []
    for i in range(photos):
        photo = waters[i % len(waters)].copy()
        if i % 3 == 0:
            photo = photo.transpose(Image.FLIP_LEFT_RIGHT)
        draw = ImageDraw.Draw(photo)
        centre = rng.uniform([250, 200], [PHOTO[0] - 250, PHOTO[1] - 200])
        draw.ellipse([*(centre - [240, 150]), *(centre + [240, 150])], fill=(156, 138, 104))
        spots = rng.normal(centre, [150, 95], (rng.integers(15, 160), 2)).clip([8, 8], [PHOTO[0] - 9, PHOTO[1] - 9])
        for x, y in spots:
            a, b = rng.uniform(5, 9), rng.uniform(4, 7)
            shade = int(rng.integers(205, 250))
            draw.ellipse([x - a, y - b, x + a, y + b], fill=(shade, shade, shade - 12))
            draw.line([x + a, y, x + a + 5, y + 1], fill=(214, 160, 60), width=2)
        path = Path(folder) / f"roost_{i:04d}.jpg"
        photo.save(path, quality=90)
        paths.append(path)
        birds.append(spots.astype(np.float32))
    return paths, birds


def density(spots):
    """Birds per cell of the output grid, blurred a little; sums to the number of birds."""
    cells = np.zeros((GRID[1], GRID[0]), dtype=np.float32)
    col = (spots[:, 0] * GRID[0] / PHOTO[0]).astype(int)
    row = (spots[:, 1] * GRID[1] / PHOTO[1]).astype(int)
    np.add.at(cells, (row, col), 1.0)
    padded = np.pad(cells, 1, mode="edge")
    blurred = sum(padded[r : r + GRID[1], c : c + GRID[0]] for r in range(3) for c in range(3)) / 9.0
    return (blurred * (cells.sum() / max(blurred.sum(), 1e-6))).astype(np.float32)


class RoostPhotos(Dataset):
    def __init__(self, paths, birds, augment):
        self.paths, self.augment = paths, augment
        self.maps = [density(spots) for spots in birds]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as photo:
            photo.draft("RGB", FRAME)  # well
            frame = np.asarray(photo.convert("RGB").resize(FRAME, Image.BILINEAR))  # here
        target = self.maps[i]
        if self.augment and np.random.rand() < 0.5:
            frame, target = frame[:, ::-1], target[:, ::-1]
        if self.augment and np.random.rand() < 0.5:
            frame, target = frame[::-1], target[::-1]
        image = torch.from_numpy(np.ascontiguousarray(frame)).permute(2, 0, 1)
        return image, torch.from_numpy(np.ascontiguousarray(target))


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class RoostCounter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.body = nn.Sequential(
            conv(3, width, 2), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2), conv(4 * width, 4 * width)
        )
        self.head = nn.Sequential(nn.Conv2d(4 * width, 32, 1), nn.ReLU(), nn.Conv2d(32, 1, 1), nn.Softplus())

    def forward(self, images):
        x = images.float().div_(127.5).sub_(1.0)
        return self.head(self.body(x)).squeeze(1)


@torch.no_grad()
def count_error(model, loader):
    model.eval()
    off = [(model(images).sum((1, 2)) - maps.sum((1, 2))).abs() for images, maps in loader]
    model.train()
    return float(torch.cat(off).mean())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--photos", type=int, default=168)
    parser.add_argument("--epochs", type=int, default=9)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    with tempfile.TemporaryDirectory() as folder:
        paths, birds = paint_roost(folder, args.photos, args.seed)
        held = 24
        train = RoostPhotos(paths[held:], birds[held:], augment=True)
        test = RoostPhotos(paths[:held], birds[:held], augment=False)
        options = dict(batch_size=args.batch, num_workers=args.workers, persistent_workers=args.workers > 0)
        train_loader = DataLoader(train, shuffle=True, drop_last=True, **options)
        test_loader = DataLoader(test, **{**options, "num_workers": min(args.workers, 1)})

        model = RoostCounter()
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
        seen, began = 0, None
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for images, maps in train_loader:
                if began is None:
                    began = time.perf_counter()
                guess = model(images)
                loss = (guess - maps).square().mean() + 1e-4 * (guess.sum((1, 2)) - maps.sum((1, 2))).abs().mean()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                total += loss.detach()
                seen += len(images)
            if (epoch + 1) % 3 == 0:
                off = count_error(model, test_loader)
                mean = float(total) / len(train_loader)
                print(f"epoch {epoch + 1}: loss {mean:.4f}, birds off by {off:.1f} per photo")
        rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
