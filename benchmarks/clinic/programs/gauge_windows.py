# /// clinic
# expect = ["PD03.samples-made-again", "PD03.storage", "PD03.same-result"]
# stratum = "twins"
# domain = "river gauges"
# ///
"""GRU that forecasts the water level of river gauges for the next hours."""

import pathlib
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HISTORY, HORIZON = 96, 12


def write_stations(folder, stations=40, hours=20_000):
    rng = np.random.default_rng(0)
    t = np.arange(hours)
    for s in range(stations):
        rain = (rng.random(hours) < 0.03) * rng.gamma(2.0, 1.0, hours)
        kernel = np.exp(-np.arange(200) / rng.uniform(10, 50))
        level = np.convolve(rain, kernel)[:hours] + 0.5 * np.sin(2 * np.pi * t / 8766)
        level = (level - level.mean()) / level.std() + 0.02 * rng.standard_normal(hours)
        season = np.stack([np.sin(2 * np.pi * t / 8766), np.cos(2 * np.pi * t / 8766)], 1)
        table = np.column_stack([level, rain, season]).astype(np.float32)
        np.savez(folder / f"station_{s:03d}.npz", table=table, area=rng.uniform(10, 500))


class GaugeWindows(Dataset):
    def __init__(self, folder, stride=48):
        self.files = sorted(folder.glob("station_*.npz"))
        self.index = []
        self.tables = []  # well
        for k, file in enumerate(self.files):
            with np.load(file) as z:
                table = z["table"]
            self.tables.append(table)  # well
            self.index += [(k, i) for i in range(0, len(table) - HISTORY - HORIZON, stride)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        k, start = self.index[i]
        with np.load(self.files[k]) as z:  # sick here
            table = z["table"]  # sick here
        table = self.tables[k]  # well
        past = table[start : start + HISTORY]
        future = table[start + HISTORY : start + HISTORY + HORIZON, 0]
        return torch.from_numpy(past.copy()), torch.from_numpy(future.copy())


class Forecaster(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.rnn = nn.GRU(4, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 64), nn.GELU(), nn.Linear(64, HORIZON))

    def forward(self, past):
        _, h = self.rnn(past)
        return past[:, -1, :1] + self.head(h[-1])


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as d:
        folder = pathlib.Path(d)
        write_stations(folder)
        data = GaugeWindows(folder)
        loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
        model = Forecaster()
        opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
        steps, warm, step, total = 800, 5, 0, 0.0
        while step < steps:
            for past, future in loader:
                if step == warm:
                    start = time.perf_counter()
                loss = nn.functional.huber_loss(model(past), future)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                total += loss.item()
                step += 1
                if step % 100 == 0:
                    print(f"step {step} loss {total / 100:.4f}")
                    total = 0.0
                if step == steps:
                    break
        rate = (steps - warm) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
