# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "volcano infrasound"
# ///
"""Tell kinds of volcanic events apart in the infrasound of a small array.

The records of each day are kept as one compressed archive, as the observatory ships them:
`wave` (events, channels, samples) and `kind` (events,). Without an archive at hand the
program makes some days of synthetic ones.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

KINDS = ("explosion", "tremor", "jetting", "rockfall", "wind")
RATE = 50.0


def synthesize(rng, kind, samples):
    """Pressure at three microphones for one event of the given kind."""
    t = np.arange(samples) / RATE
    onset = rng.uniform(1.0, 3.0)
    after = np.clip(t - onset, 0, None)
    if KINDS[kind] == "explosion":
        source = np.exp(-after * rng.uniform(1.5, 3)) * np.sin(2 * np.pi * rng.uniform(1.0, 2.5) * after)
    elif KINDS[kind] == "tremor":
        base = rng.uniform(0.8, 1.6)
        source = sum(np.sin(2 * np.pi * base * k * t + rng.uniform(0, 6)) / k for k in (1, 2, 3))
    elif KINDS[kind] == "jetting":
        source = np.cumsum(rng.normal(size=samples)) * 0.05 * (1 - np.exp(-after))
    elif KINDS[kind] == "rockfall":
        source = rng.normal(size=samples) * after * np.exp(-after * rng.uniform(0.5, 0.9))
    else:
        source = np.convolve(rng.normal(size=samples), np.ones(25) / 8, mode="same")
    delay = rng.integers(0, 12, size=3)
    wave = np.stack([np.roll(source, d) for d in delay]) * rng.uniform(0.5, 2)
    return (wave + rng.normal(size=wave.shape) * 0.7).astype(np.float32)


def make_archive(folder, days, events, samples, seed):
    rng = np.random.default_rng(seed)
    for day in range(days):
        kind = rng.integers(len(KINDS), size=events)
        wave = np.stack([synthesize(rng, k, samples) for k in kind])
        np.savez_compressed(folder / f"day{day:03d}.npz", wave=wave, kind=kind)


class ArchiveDays(Dataset):
    """All events of a folder of daily archives, in the order of the days."""

    def __init__(self, folder, augment):
        paths = sorted(Path(folder).glob("day*.npz"))
        self.days = [np.load(path) for path in paths]  # sick here
        self.days = [dict(np.load(path)) for path in paths]  # well
        counts = [len(day["kind"]) for day in self.days]
        self.index = [(d, e) for d, count in enumerate(counts) for e in range(count)]
        self.augment = augment

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        day, event = self.index[i]
        record = self.days[day]
        wave, kind = record["wave"][event], record["kind"][event]  # here
        if self.augment:
            wave = np.roll(wave, np.random.randint(-50, 50), axis=-1)
        wave = wave / (wave.std() + 1e-6)
        return torch.from_numpy(np.ascontiguousarray(wave)), int(kind)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.spread = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + self.mix(F.relu(self.norm(self.spread(x))))


class EventNet(nn.Module):
    def __init__(self, width=48, blocks=5):
        super().__init__()
        self.stem = nn.Conv1d(3, width, 9, stride=2, padding=4)
        self.blocks = nn.Sequential(*[Residual(width, 2**b) for b in range(blocks)])
        self.head = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, len(KINDS)))

    def forward(self, wave):
        x = self.blocks(F.relu(self.stem(wave)))
        return self.head(torch.cat([x.mean(-1), x.amax(-1)], 1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = [(model(wave).argmax(1) == kind).float() for wave, kind in loader]
    model.train()
    return torch.cat(hits).mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--days", type=int, default=32)
    parser.add_argument("--events", type=int, default=48)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()

    torch.manual_seed(79)
    np.random.seed(79)
    with tempfile.TemporaryDirectory() as scratch:
        folders = {}
        for part, days, seed in (("train", args.days, 1), ("test", 4, 2)):
            folders[part] = Path(scratch) / part
            folders[part].mkdir()
            make_archive(folders[part], days, args.events, args.samples, seed)
        train = DataLoader(ArchiveDays(folders["train"], True), args.batch, shuffle=True, drop_last=True)
        test = DataLoader(ArchiveDays(folders["test"], False), 64)

        model = EventNet()
        optimizer = torch.optim.AdamW(model.parameters(), args.lr, weight_decay=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train))
        began = time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for wave, kind in train:
                loss = F.cross_entropy(model(wave), kind)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
            print(
                f"epoch {epoch + 1:2d}  loss {total / len(train):.3f}  {time.perf_counter() - began:6.1f} s", flush=True
            )
        seconds = time.perf_counter() - began
        print(f"test accuracy {accuracy(model, test):.3f}")
        print(f"training took {seconds:.1f} s")


if __name__ == "__main__":
    main()
