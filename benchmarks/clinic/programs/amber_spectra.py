# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "provenance of amber from infrared spectra"
# ///
#!/usr/bin/env python3
"""Provenance of amber beads from their infrared spectra (Baltic, Rovno, Saxon, Simeto, Burmese).

    python amber.py --epochs 160 --batch-size 64

The spectrometer's export (one .npz with all spectra, their deposit and the bead's weathering
index) is simulated on the first start and kept in --work.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset
from torchmetrics.classification import MulticlassAccuracy

DEPOSITS = ["baltic", "rovno", "saxon", "simeto", "burmese"]
BINS = 256
WINDOW = 8


def export_spectra(path, count, seed):
    """What the lab's software would have written."""
    rng = np.random.default_rng(seed)
    wavenumber = np.linspace(700, 3600, BINS)
    deposit = rng.integers(len(DEPOSITS), size=count)
    weathering = rng.beta(2, 4, size=count)
    centres = np.array([888, 1020, 1158, 1250, 1380, 1450, 1735, 2870, 2930, 3080])
    strength = np.random.default_rng(7).uniform(0.4, 1.0, (len(DEPOSITS), len(centres)))
    shoulder = np.random.default_rng(8).uniform(-9, 9, (len(DEPOSITS), len(centres)))
    spectra = np.empty((count, BINS), np.float32)
    for i in range(count):
        k = deposit[i]
        c = centres + shoulder[k] + rng.normal(0, 3.0, len(centres))
        a = strength[k] * rng.uniform(0.75, 1.25, len(centres))
        a[6] *= 1 + weathering[i]
        a[0] *= 1 - 0.6 * weathering[i]
        lines = a[:, None] * np.exp(-0.5 * ((wavenumber - c[:, None]) / 24) ** 2)
        slope = rng.uniform(-0.3, 0.3) * (wavenumber - 2000) / 1500
        spectra[i] = lines.sum(0) + slope + rng.normal(0, 0.12, BINS)
    np.savez(path, absorbance=spectra, deposit=deposit, weathering=weathering.astype(np.float32))


class AmberSpectra(Dataset):
    """Spectra of one export, scaled to zero mean and unit deviation."""

    def __init__(self, path):
        export = np.load(path)
        self.absorbance = export["absorbance"]  # well
        self.deposit = export["deposit"]
        self.weathering = export["weathering"]
        self.export = export  # sick

    def __len__(self):
        return len(self.deposit)

    def __getitem__(self, i):
        spectrum = self.export["absorbance"][i]  # sick here
        spectrum = self.absorbance[i]  # well
        spectrum = (spectrum - spectrum.mean()) / spectrum.std()
        return spectrum, self.deposit[i], self.weathering[i]


class Mixer(nn.Module):
    """Mixes along the windows of a spectrum, then within each window."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Linear(BINS // WINDOW, BINS // WINDOW)
        self.within = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.along(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class Assayer(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.stem = nn.Linear(WINDOW, width)
        self.place = nn.Parameter(torch.randn(BINS // WINDOW, width) * 0.02)
        self.trunk = nn.Sequential(*[Mixer(width) for _ in range(depth)], nn.LayerNorm(width))
        self.deposit = nn.Linear(width, len(DEPOSITS))
        self.weathering = nn.Linear(width, 1)

    def forward(self, spectra):
        h = self.stem(spectra.unflatten(1, (-1, WINDOW))) + self.place
        h = self.trunk(h).mean(1)
        return self.deposit(h), self.weathering(h).squeeze(-1)


def evaluate(model, loader, accelerator):
    accuracy = MulticlassAccuracy(len(DEPOSITS), average="micro").to(accelerator.device)
    error, seen = torch.zeros(()), 0
    model.eval()
    with torch.no_grad():
        for spectra, deposit, weathering in loader:
            logits, age = model(spectra)
            accuracy.update(logits, deposit)
            error += (age - weathering).abs().sum()
            seen += len(deposit)
    model.train()
    return accuracy.compute().item(), (error / seen).item()


def parse_args():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "amber_export")
    p.add_argument("--beads", type=int, default=600)
    p.add_argument("--epochs", type=int, default=160)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--depth", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    args.work.mkdir(parents=True, exist_ok=True)
    path = args.work / f"ftir_{args.beads}_{args.seed}.npz"
    if not path.exists():
        export_spectra(path, args.beads, args.seed)

    accelerator = Accelerator(cpu=True)
    beads = AmberSpectra(path)
    order = torch.randperm(len(beads)).tolist()
    cut = len(beads) * 4 // 5
    train = DataLoader(Subset(beads, order[:cut]), args.batch_size, shuffle=True, drop_last=True)
    test = DataLoader(Subset(beads, order[cut:]), args.batch_size)
    model = Assayer(args.width, args.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.02, fused=True)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)

    start = time.time()
    for epoch in range(1, args.epochs + 1):
        running = torch.zeros(())
        for spectra, deposit, weathering in train:
            logits, age = model(spectra)
            loss = F.cross_entropy(logits, deposit, label_smoothing=0.05)
            loss = loss + 4 * F.mse_loss(age, weathering)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
        if epoch % 40 == 0:
            accuracy, error = evaluate(model, test, accelerator)
            accelerator.print(
                f"[{epoch:03d}] loss {running.item() / len(train):.4f} deposit {accuracy:.3f} weathering +-{error:.3f}"
            )
    accelerator.print(f"total training seconds: {time.time() - start:.1f}")


if __name__ == "__main__":
    main()
