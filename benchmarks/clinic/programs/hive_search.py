# /// clinic
# expect = ["PD13.too-many-threads"]
# stratum = "twins"
# domain = "beekeeping"
# ///
# Bee hives on scales: small search over temporal CNNs that predict tomorrow's weight curve, then an ensemble.
# Two candidates are trained side by side, each is scored on the last apiary's hives.
import itertools
import multiprocessing as mp
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import torch
from torch import nn

HISTORY, AHEAD, CHANNELS = 144, 24, 5
STEPS_PER_TRIAL, FINAL_STEPS, BATCH = 64, 120, 48
MEMBERS = 3
DATA = Path("hives.npz")

GRID = {
    "width": [32, 40],
    "lr": [1e-3, 3e-3],
}


def simulate_hives(hives=36, days=120, seed=5):
    """Hourly weight, brood temperature, outside temperature, humidity and hum of each hive."""
    rng = np.random.default_rng(seed)
    hours = np.arange(days * 24)
    day = 2 * np.pi * hours / 24
    table = np.empty((hives, CHANNELS, len(hours)), np.float32)
    for hive in range(hives):
        outside = 14 + 7 * np.sin(day - 2) + np.cumsum(rng.normal(0, 0.12, len(hours)))
        flow = np.clip(outside - 12, 0, None) * rng.uniform(0.002, 0.012) * np.clip(np.sin(day - 1.5), 0, None)
        foragers_out = -0.4 * np.clip(np.sin(day - 1.2), 0, None)
        weight = 30 + np.cumsum(flow - 0.01) + foragers_out + rng.normal(0, 0.03, len(hours))
        brood = 34.8 + 0.03 * (outside - 14) + rng.normal(0, 0.2, len(hours))
        humidity = 70 - 1.5 * (outside - 14) + rng.normal(0, 3, len(hours))
        hum = 220 + 25 * np.sin(day - 1.4) + rng.normal(0, 8, len(hours))
        table[hive] = [weight, brood, outside, humidity, hum]
    table -= table.mean(axis=2, keepdims=True)
    table /= table.std(axis=2, keepdims=True) + 1e-6
    return table


class Windows:
    def __init__(self, table, seed):
        self.table = torch.from_numpy(table)
        self.generator = torch.Generator().manual_seed(seed)
        self.last = table.shape[2] - HISTORY - AHEAD

    def draw(self, n):
        hive = torch.randint(len(self.table), (n,), generator=self.generator)
        start = torch.randint(self.last, (n,), generator=self.generator)
        hours = start[:, None] + torch.arange(HISTORY + AHEAD)
        rows = self.table[hive[:, None], :, hours].transpose(1, 2)
        return rows[:, :, :HISTORY].contiguous(), rows[:, 0, HISTORY:].contiguous()


class Residual(nn.Module):
    def __init__(self, width, dilation, dropout):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConstantPad1d((2 * dilation, 0), 0.0),
            nn.Conv1d(width, width, 3, dilation=dilation),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Conv1d(width, width, 1),
        )
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return self.norm(x + self.net(x))


class HiveTCN(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, width, 1)
        self.blocks = nn.Sequential(*(Residual(width, d, dropout) for d in (1, 4, 16)))
        self.ahead = nn.Linear(2 * width, AHEAD)

    def forward(self, x):
        h = self.blocks(self.stem(x))
        return x[:, 0, -1:] + self.ahead(torch.cat([h[:, :, -1], h.mean(dim=2)], dim=1))


def train(config, table, steps, seed):
    torch.manual_seed(seed)
    windows = Windows(table, seed)
    model = HiveTCN(config["width"], dropout=0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    began = time.time()
    for _ in range(steps):
        x, y = windows.draw(BATCH)
        loss = nn.functional.smooth_l1_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model, began


@torch.no_grad()
def score(model, table, batches=6):
    model.eval()
    windows = Windows(table, seed=99)
    errors = []
    for _ in range(batches):
        x, y = windows.draw(BATCH)
        errors.append((model(x) - y).abs().mean())
    return torch.stack(errors).mean().item()


def trial(number, config):
    table = np.load(DATA)["table"]
    model, began = train(config, table[:-6], STEPS_PER_TRIAL, seed=number)
    return number, score(model, table[-6:]), began, time.time()


def search(configs):
    context = mp.get_context("spawn")
    results = []
    pool = ProcessPoolExecutor(max_workers=2, mp_context=context)  # sick here
    pool = ProcessPoolExecutor(2, context, initializer=torch.set_num_threads, initargs=(1,))  # well
    with pool:
        futures = [pool.submit(trial, number, config) for number, config in enumerate(configs)]
        for future in as_completed(futures):
            number, error, began, ended = future.result()
            print(f"trial {number} {configs[number]}: error {error:.4f} after {ended - began:.1f} s")
            results.append((error, number, began))
    return results


def main():
    np.savez(DATA, table=simulate_hives())
    configs = [dict(zip(GRID, values)) for values in itertools.product(*GRID.values())]
    results = search(configs)
    first_step = min(began for _, _, began in results)
    error, best, _ = min(results)
    print(f"best: trial {best} with error {error:.4f}")

    table = np.load(DATA)["table"]
    for member in range(MEMBERS):
        model, _ = train(configs[best], table, FINAL_STEPS, seed=1000 + member)
        torch.save({"config": configs[best], "model": model.state_dict()}, f"hive_tcn{member}.pt")
        print(f"member {member}: error on its own hives {score(model, table):.4f}")
    seconds = time.time() - first_step
    rate = (len(configs) * STEPS_PER_TRIAL + MEMBERS * FINAL_STEPS) * BATCH / seconds
    print(f"{rate:.1f} windows/s")


if __name__ == "__main__":
    main()
