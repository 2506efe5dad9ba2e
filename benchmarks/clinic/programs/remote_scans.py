# /// clinic
# expect = ["PD03.too-few-workers", "PD03.storage", "PD03.slow-storage"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {SLICES = [20, 28], BATCH = [14, 18]}
# severities = {ANSWER_MS = [0.4, 1.5, 8.0]}
# ///
"""Finds lesions in slices of scans that are kept in the hospital's object store."""

import io
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

SLICES = 24
BATCH = 16
ANSWER_MS = 1.5


class Store:
    """Objects by key, as a service in the same data centre hands them out."""

    def __init__(self, root):
        self.root = Path(root)

    def put(self, key, array):
        np.save(self.root / f"{key}.npy", array)

    def get(self, key):
        time.sleep(ANSWER_MS / 1000)  # the way there and back
        return io.BytesIO((self.root / f"{key}.npy").read_bytes())


class Scans(Dataset):
    def __init__(self, store, patients):
        self.store = store
        self.keys = [f"{patient:03d}-{number:02d}" for patient in range(patients) for number in range(SLICES)]

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, index):
        slice_ = np.load(self.store.get(self.keys[index]))
        mask = slice_ > 1.5
        return torch.from_numpy(slice_)[None], torch.from_numpy(mask).float()[None]


def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU()
    )


class Segmenter(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.ModuleList([block(1, width), block(width, 2 * width)])
        self.bottom = block(2 * width, 4 * width)
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        kept = []
        for stage in self.down:
            x = stage(x)
            kept.append(x)
            x = functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for stage in self.up:
            x = stage(torch.cat([functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.last(x)


def main(root, patients=50, epochs=3):
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    store = Store(root)
    scans = Scans(store, patients)
    for key in scans.keys:
        store.put(key, generator.normal(size=(48, 48)).astype(np.float32))
    loader = DataLoader(scans, batch_size=BATCH, shuffle=True)  # sick here
    loader = DataLoader(scans, BATCH, shuffle=True, num_workers=4, persistent_workers=True)  # well
    model = Segmenter()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    seen, began = 0, 0.0
    for epoch in range(epochs):
        for images, masks in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.binary_cross_entropy_with_logits(model(images), masks)
            loss.backward()
            optimizer.step()
            seen += len(images)
        print(f"epoch {epoch}: {float(loss):.4f}")
        if epoch == 0:
            seen, began = 0, time.perf_counter()
    print(f"{seen / (time.perf_counter() - began):.1f} slices/s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
