# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "falcon telemetry"
# ///
"""Ethogram of trained falcons from back-pack telemetry (tri-axial accelerometer, gyroscope).

Flights are logged to one archive each; the network labels windows of 2.56 s with one of five
behaviours.  Run:  accelerate launch --cpu falcon_ethogram.py   or plainly   python falcon_ethogram.py
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassF1Score

BEHAVIOURS = ("perched", "flapping", "soaring", "stooping", "feeding")
RATE = 50.0
WINDOW = 128


def fly(rng, segments):
    """One flight: behaviours follow one another, each with its own rhythm and posture."""
    imu, labels = [], []
    for _ in range(segments):
        kind = int(rng.integers(len(BEHAVIOURS)))
        t = np.arange(rng.integers(150, 350)) / RATE
        phase = rng.uniform(0, 2 * np.pi, 6)[:, None]
        beat = {0: 0.3, 1: 4.5, 2: 0.6, 3: 1.5, 4: 2.2}[kind] * rng.uniform(0.7, 1.4)
        swing = {0: 0.05, 1: 0.9, 2: 0.25, 3: 0.5, 4: 0.6}[kind] * rng.uniform(0.5, 1.5)
        posture = np.array([[0.0, 0.2, 1.0, 0.0, 0.0, 0.0]]).T * (1.0 + 1.2 * (kind == 3))
        wave = swing * np.sin(2 * np.pi * beat * t + phase)
        imu.append(posture + wave + rng.normal(scale=0.35, size=(6, t.size)))
        labels.append(np.full(t.size, kind))
    return np.concatenate(imu, axis=1).astype(np.float32), np.concatenate(labels)


def record_season(folder, flights, segments, seed):
    rng = np.random.default_rng(seed)
    paths = []
    for number in range(flights):
        imu, labels = fly(rng, segments)
        path = folder / f"flight_{seed:02d}_{number:03d}.npz"
        np.savez_compressed(path, imu=imu, behaviour=labels)
        paths.append(path)
    return paths


class FlightWindows(Dataset):
    """All windows of all flights; a window's label is the behaviour at its centre."""

    def __init__(self, paths, stride):
        self.flights = [np.load(path) for path in paths]  # sick here
        self.flights = [dict(np.load(path)) for path in paths]  # well
        self.index = []
        for number, flight in enumerate(self.flights):
            samples = flight["imu"].shape[1]
            self.index += [(number, begin) for begin in range(0, samples - WINDOW, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, item):
        number, begin = self.index[item]
        flight = self.flights[number]
        window = flight["imu"][:, begin : begin + WINDOW]  # here
        label = flight["behaviour"][begin + WINDOW // 2]  # here
        return torch.from_numpy(window), int(label)


class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation, bias=False),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 1, bias=False),
            nn.BatchNorm1d(width),
        )

    def forward(self, x):
        return torch.relu(x + self.body(x))


class Ethogram(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.stem = nn.Conv1d(6, width, 7, padding=3)
        self.trunk = nn.Sequential(*[Residual(width, d) for d in (1, 2, 4, 8)])
        self.head = nn.Linear(2 * width, len(BEHAVIOURS))

    def forward(self, x):
        h = self.trunk(torch.relu(self.stem(x)))
        return self.head(torch.cat([h.mean(2), h.amax(2)], dim=1))


@torch.no_grad()
def evaluate(accelerator, model, loader, metric):
    model.eval()
    metric.reset()
    for windows, labels in loader:
        predicted, labels = accelerator.gather_for_metrics((model(windows).argmax(1), labels))
        metric.update(predicted, labels)
    model.train()
    return metric.compute().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=18)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    set_seed(5)
    accelerator = Accelerator(cpu=True)

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        train_set = FlightWindows(record_season(folder, flights=36, segments=8, seed=1), stride=24)
        test_set = FlightWindows(record_season(folder, flights=12, segments=8, seed=2), stride=64)
        accelerator.print(f"{len(train_set)} training windows, {len(test_set)} test windows")
        train_loader = DataLoader(train_set, args.batch_size, shuffle=True, drop_last=True)
        test_loader = DataLoader(test_set, 2 * args.batch_size)

        model = Ethogram()
        optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(train_loader))
        model, optimizer, train_loader, test_loader, schedule = accelerator.prepare(
            model, optimizer, train_loader, test_loader, schedule
        )
        loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
        f1 = MulticlassF1Score(len(BEHAVIOURS)).to(accelerator.device)

        start = time.perf_counter()
        for epoch in range(args.epochs):
            losses = []
            for windows, labels in train_loader:
                loss = loss_fn(model(windows), labels)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                schedule.step()
                losses.append(loss.detach())
            score = evaluate(accelerator, model, test_loader, f1)
            accelerator.print(f"epoch {epoch:2d} loss {torch.stack(losses).mean():.4f} macro-F1 {score:.3f}")
        accelerator.print(f"total training seconds: {time.perf_counter() - start:.1f}")


if __name__ == "__main__":
    main()
