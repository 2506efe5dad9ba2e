# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "object detection, orchard photographs"
# ///
"""Trains a centre-point detector for plums on mosaics of orchard photographs."""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TILE = 80
STRIDE = 4


def make_photos(folder, count, seed=0):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:240, 0:240].astype(np.float32)
    for i in range(count):
        shade = 90 + 40 * np.sin(xx / rng.uniform(15, 60)) + 30 * np.cos(yy / rng.uniform(15, 60))
        photo = np.stack([0.5 * shade, shade, 0.4 * shade], axis=-1) + rng.integers(0, 12, (240, 240, 1))
        boxes = []
        for _ in range(rng.integers(3, 8)):
            cx, cy, r = rng.uniform(20, 220), rng.uniform(20, 220), rng.uniform(9, 18)
            photo[(xx - cx) ** 2 + (yy - cy) ** 2 < r * r] = (95, 40, 110 + rng.integers(0, 60))
            boxes.append((cx / 240, cy / 240, 2 * r / 240))
        np.savez_compressed(
            folder / f"photo_{i:04d}.npz",
            photo=photo.clip(0, 255).astype(np.uint8),
            boxes=np.array(boxes, dtype=np.float32),
        )


class MosaicDataset(Dataset):
    def __init__(self, folder, length):
        self.paths = sorted(Path(folder).glob("*.npz"))
        self.length = length
        self.photos = [self.decode(path) for path in self.paths]  # well

    def __len__(self):
        return self.length

    def decode(self, path):
        with np.load(path) as archive:
            photo, boxes = torch.from_numpy(archive["photo"]), torch.from_numpy(archive["boxes"])
        photo = photo.permute(2, 0, 1)[None].float() / 255
        return F.interpolate(photo, size=(TILE, TILE), mode="area")[0], boxes

    def load(self, i):
        return self.decode(self.paths[i])  # sick here
        return self.photos[i]  # well

    def __getitem__(self, index):
        rng = np.random.default_rng(index)
        canvas = torch.empty(3, 2 * TILE, 2 * TILE)
        found = []
        for k, pick in enumerate(rng.integers(0, len(self.paths), 4)):
            photo, boxes = self.load(int(pick))
            if rng.random() < 0.5:
                photo = photo.flip(-1)
                boxes = torch.stack([1 - boxes[:, 0], boxes[:, 1], boxes[:, 2]], dim=1)
            top, left = divmod(k, 2)
            canvas[:, top * TILE : (top + 1) * TILE, left * TILE : (left + 1) * TILE] = photo
            found.append((boxes + torch.tensor([left, top, 0.0])) * TILE / STRIDE)
        return canvas * float(rng.uniform(0.8, 1.2)), *render(torch.cat(found))


def render(boxes):
    size = 2 * TILE // STRIDE
    grid = torch.arange(size) + 0.5
    sigma = (boxes[:, 2:] / 4).clamp(min=0.7)
    gx = torch.exp(-(((grid - boxes[:, :1]) / sigma) ** 2) / 2)
    gy = torch.exp(-(((grid - boxes[:, 1:2]) / sigma) ** 2) / 2)
    heat = (gy[:, :, None] * gx[:, None, :]).amax(dim=0)
    extent = torch.zeros(size, size)
    cells = boxes[:, :2].long().clamp(0, size - 1)
    extent[cells[:, 1], cells[:, 0]] = boxes[:, 2]
    return heat, extent


def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class CentreNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(block(3, width, 2), block(width, 2 * width, 2))
        self.deep = nn.Sequential(block(2 * width, 4 * width, 2), block(4 * width, 4 * width))
        self.merge = block(6 * width, 2 * width)
        self.head = nn.Conv2d(2 * width, 2, 1)

    def forward(self, x):
        fine = self.stem(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0, mode="nearest")
        return self.head(self.merge(torch.cat([fine, coarse], dim=1))).unbind(dim=1)


def detection_loss(logits, extent, heat, true_extent):
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, heat, reduction="none")
    centre = (ce * (p - heat).abs() ** 2).sum() / heat.shape[0]
    mask = (true_extent > 0).float()
    return centre + ((extent - true_extent).abs() * mask).sum() / mask.sum().clamp(min=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--width", type=int, default=14)
    parser.add_argument("--photos", type=int, default=240)
    args = parser.parse_args()
    torch.manual_seed(0)

    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder), args.photos)
        dataset = MosaicDataset(folder, args.steps * args.batch_size)
        loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True)
        model = CentreNet(args.width)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for step, (images, heat, extent) in enumerate(loader):
            if step == 5:
                start = time.perf_counter()
            loss = detection_loss(*model(images), heat, extent)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 50 == 0:
                print(f"step {step}: loss {loss.item():.3f}")
        elapsed = time.perf_counter() - start
    print(f"{(args.steps - 5) / elapsed:.2f} steps/s")


if __name__ == "__main__":
    main()
