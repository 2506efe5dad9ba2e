# /// clinic
# expect = ["PD03.samples-made-again", "PD03.same-result", "PD03.transform"]
# stratum = "twins"
# domain = "hand-drawn signs"
# ///
"""Recognises ten hand-drawn lantern signs from scanned sheets."""

import random
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10
SHEETS = 2400
SCAN = 160
SIDE = 32
EPOCHS = 8
BATCH = 48


def draw_sheets(folder, count, seed=3):
    """Writes count scans, each a wobbly copy of one of the ten signs."""
    rng = np.random.default_rng(seed)
    signs = [rng.uniform(0.15, 0.85, size=(6, 2)) for _ in range(CLASSES)]
    files, labels = [], []
    for n in range(count):
        label = int(rng.integers(CLASSES))
        points = signs[label] + rng.normal(0, 0.035, size=(6, 2)) + rng.normal(0, 0.04, size=2)
        image = Image.new("L", (SCAN, SCAN), 245)
        pen = ImageDraw.Draw(image)
        pen.line([tuple(p) for p in (points * SCAN).tolist()], fill=25, width=int(rng.integers(4, 9)), joint="curve")
        path = folder / f"sheet_{n:05d}.png"
        image.save(path, compress_level=1)
        files.append(path)
        labels.append(label)
    return files, labels


def read_sign(path):
    with Image.open(path) as image:
        small = image.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    pixels = np.asarray(small, dtype=np.float32)
    return torch.from_numpy(1.0 - pixels / 255.0).unsqueeze(0)


class Signs(Dataset):
    def __init__(self, files, labels):
        self.files = files
        self.labels = torch.tensor(labels)
        self.images = [read_sign(path) for path in files]  # well

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return read_sign(self.files[i]), self.labels[i]  # sick here
        return self.images[i], self.labels[i]  # well


class SignNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Linear(64 * 4 * 4, CLASSES)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def main():
    random.seed(0)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        files, labels = draw_sheets(Path(name), SHEETS)
        loader = DataLoader(Signs(files, labels), batch_size=BATCH, shuffle=True, drop_last=True)
        model = SignNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loss_fn = nn.CrossEntropyLoss()

        seen = 0
        began = time.perf_counter()
        for epoch in range(EPOCHS):
            total, right = torch.zeros(()), torch.zeros(())
            for images, targets in loader:
                logits = model(images)
                loss = loss_fn(logits, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(targets)
                right += (logits.detach().argmax(1) == targets).sum()
                seen += len(targets)
            share = len(loader) * BATCH
            print(f"epoch {epoch}: loss {total.item() / share:.3f}, accuracy {right.item() / share:.3f}")
        elapsed = time.perf_counter() - began
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
