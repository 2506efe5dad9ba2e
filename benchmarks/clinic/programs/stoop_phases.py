# /// clinic
# expect = ["PD17.slow-update"]
# stratum = "twins"
# domain = "falconry flights"
# ///
"""Phases of a falcon's hunting flight (waiting-on, ringing up, stoop, pursuit, lure, perch) from backpack loggers.

Nine channels at 20 Hz: three-axis acceleration, three-axis rate of turn, barometric height, climb rate, ground speed.
A recording is cut in windows of six seconds; every sample of a window gets its own label.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

PHASES = ["waiting_on", "ringing_up", "stoop", "pursuit", "lure", "perch"]
# wing beat (Hz), strength of beat (g), climb (m/s), speed (m/s), turn (rad/s), mean dwell (samples)
TRAITS = np.array(
    [
        [3.8, 0.55, 0.0, 11.0, 0.35, 90],
        [4.6, 0.90, 2.4, 13.0, 0.20, 110],
        [0.3, 0.15, -38.0, 62.0, 0.05, 35],
        [5.4, 1.10, 0.5, 24.0, 0.90, 60],
        [4.9, 0.85, -0.3, 17.0, 1.60, 70],
        [0.1, 0.05, 0.0, 0.2, 0.02, 100],
    ]
)
NEXT = np.array(
    [
        [0.0, 0.4, 0.5, 0.0, 0.1, 0.0],
        [0.7, 0.0, 0.2, 0.1, 0.0, 0.0],
        [0.1, 0.1, 0.0, 0.7, 0.0, 0.1],
        [0.0, 0.3, 0.0, 0.0, 0.3, 0.4],
        [0.0, 0.2, 0.1, 0.1, 0.0, 0.6],
        [0.2, 0.7, 0.0, 0.0, 0.1, 0.0],
    ]
)


def fly(samples, rng, rate=20.0):
    """One flight: a semi-Markov chain of phases with the signals of each."""
    label = np.empty(samples, dtype=np.int64)
    at, phase = 0, 5
    while at < samples:
        dwell = max(8, int(rng.gamma(4.0, TRAITS[phase, 5] / 4.0)))
        label[at : at + dwell] = phase
        at += dwell
        phase = rng.choice(6, p=NEXT[phase])
    trait = TRAITS[label]
    beat = np.cumsum(2 * np.pi * trait[:, 0] / rate) + rng.uniform(0, 6.28)
    climb = trait[:, 2] + rng.normal(0, 1.2, samples)
    signal = np.stack(
        [
            trait[:, 1] * np.sin(beat),
            0.3 * trait[:, 1] * np.cos(beat),
            1.0 + trait[:, 1] * np.sin(beat + 0.7),
            trait[:, 4] * np.sin(0.11 * beat),
            0.4 * trait[:, 4] * np.cos(0.13 * beat),
            trait[:, 4] * np.ones(samples),
            np.cumsum(climb) / rate / 50.0,
            climb / 10.0,
            trait[:, 3] / 20.0,
        ],
        axis=1,
    )
    return (signal + rng.normal(0, 0.25, signal.shape)).astype(np.float32), label


class FlightWindows(Dataset):
    def __init__(self, flights, window, hop):
        self.items = []
        for signal, label in flights:
            for start in range(0, len(signal) - window + 1, hop):
                stop = start + window
                self.items.append((torch.from_numpy(signal[start:stop]), torch.from_numpy(label[start:stop])))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(F.gelu(self.mix(self.norm(x))))


class PhaseTagger(nn.Module):
    """The whole window at once: samples and channels in one vector, residual blocks, a label for each sample."""

    def __init__(self, window, channels=9, width=1536, blocks=3, phases=len(PHASES), dropout=0.1):
        super().__init__()
        self.window, self.phases = window, phases
        self.stem = nn.Linear(window * channels, width)
        self.blocks = nn.Sequential(*[Block(width, dropout) for _ in range(blocks)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, window * phases))

    def forward(self, signal):
        return self.head(self.blocks(self.stem(signal.flatten(1)))).view(-1, self.window, self.phases)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    confusion = torch.zeros(len(PHASES), len(PHASES))
    for signal, label in loader:
        guess = model(signal).argmax(-1)
        pair = label.flatten() * len(PHASES) + guess.flatten()
        confusion += torch.bincount(pair, minlength=len(PHASES) ** 2).view_as(confusion)
    model.train()
    hit = confusion.diag()
    f1 = 2 * hit / (confusion.sum(0) + confusion.sum(1)).clamp(min=1)
    return (hit.sum() / confusion.sum()).item(), f1.mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flights", type=int, default=36)
    parser.add_argument("--window", type=int, default=120)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    flights = [fly(9600, rng) for _ in range(args.flights)]
    held = args.flights // 10
    train = FlightWindows(flights[held:], args.window, hop=60)
    valid = FlightWindows(flights[:held], args.window, hop=args.window)
    loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    valid_loader = DataLoader(valid, batch_size=256)

    model = PhaseTagger(args.window)
    weight = torch.bincount(torch.cat([label for _, label in train]), minlength=len(PHASES)).float()
    weight = (weight.sum() / weight.clamp(min=1)).sqrt()
    weight = weight / weight.mean()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)  # sick here
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3, fused=True)  # well
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    print(f"{len(train)} windows, {len(loader)} steps an epoch, {sum(p.numel() for p in model.parameters())} weights")

    seen, began = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = 0.0
        for signal, label in loader:
            logits = model(signal)
            loss = F.cross_entropy(logits.flatten(0, 1), label.flatten(), weight=weight)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
            seen += len(signal)
        accuracy, f1 = evaluate(model, valid_loader)
        print(f"epoch {epoch + 1}: loss {total / len(loader):.4f}, accuracy {accuracy:.3f}, macro F1 {f1:.3f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
