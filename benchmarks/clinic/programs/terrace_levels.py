# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "rice terrace water levels"
# ///
"""Forecast water levels on a hillside of rice terraces.

Every paddy drains through its sluices into a few paddies below. A message passing network reads the last day of level,
inflow, rain, sluice opening and soil moisture at each paddy and forecasts the level six hours ahead.
"""

import argparse
import time

import numpy as np
import torch
from torch import nn


def build_hillside(rows: int, columns: int, rng: np.random.Generator):
    """Returns edges (upper paddy, lower paddy), their capacity and fall, and the paddies' areas."""
    edges = []
    for r in range(rows - 1):
        for c in range(columns):
            for d in (-1, 0, 1):
                if 0 <= c + d < columns and (d == 0 or rng.random() < 0.45):
                    edges.append((r * columns + c, (r + 1) * columns + c + d))
    edges = np.array(edges)
    capacity = rng.uniform(0.02, 0.09, len(edges))
    fall = rng.uniform(0.4, 1.8, len(edges))
    area = rng.lognormal(0.0, 0.35, rows * columns)
    return edges, capacity, fall, area


def simulate(edges, capacity, area, hours: int, rng: np.random.Generator):
    """Hourly water balance of all paddies: rain, spring water on top, sluices, seepage."""
    n = len(area)
    level = np.full(n, 0.10)
    soil = np.full(n, 0.5)
    opening = rng.uniform(0.2, 1.0, len(edges))
    storm = 0.0
    record = np.zeros((hours, n, 5))
    for t in range(hours):
        storm = 0.9 * storm + (rng.gamma(0.6, 0.01) if rng.random() < 0.08 else 0.0)
        rain = storm * rng.uniform(0.8, 1.2, n)
        turn = rng.random(len(edges)) < 0.02
        opening[turn] = rng.uniform(0.0, 1.0, turn.sum())
        flow = capacity * opening * np.sqrt(np.maximum(level[edges[:, 0]], 0.0))
        inflow = np.bincount(edges[:, 1], flow, n)
        outflow = np.bincount(edges[:, 0], flow, n)
        inflow[: n // 12] += 0.012 * (1.2 + np.sin(t / 24 * 2 * np.pi))
        seep = 0.002 + 0.004 * (1 - soil)
        level = np.clip(level + rain + (inflow - outflow) / area - seep, 0.0, 0.6)
        soil = np.clip(soil + 0.05 * (level > 0.02) - 0.01, 0.0, 1.0)
        gate = np.bincount(edges[:, 0], opening, n) / np.maximum(np.bincount(edges[:, 0], minlength=n), 1)
        record[t] = np.stack([level, inflow, rain * 20, gate, soil], 1)
    return record


class SluiceLayer(nn.Module):
    """One round of messages down and up the hill; edges know their capacity and fall."""

    def __init__(self, width: int):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(2 * width + 2, width), nn.SiLU(), nn.Linear(width, width))
        self.up = nn.Sequential(nn.Linear(2 * width + 2, width), nn.SiLU(), nn.Linear(width, width))
        self.update = nn.Sequential(nn.Linear(3 * width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, h, edges, edge_features):
        upper, lower = edges
        pair = torch.cat([h[:, upper], h[:, lower], edge_features.expand(h.shape[0], -1, -1)], -1)
        from_above = torch.zeros_like(h).index_add(1, lower, self.down(pair))
        from_below = torch.zeros_like(h).index_add(1, upper, self.up(pair))
        return self.norm(h + self.update(torch.cat([h, from_above, from_below], -1)))


class TerraceNet(nn.Module):
    def __init__(self, window: int, channels: int, width: int, rounds: int):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(window * channels + 1, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.rounds = nn.ModuleList(SluiceLayer(width) for _ in range(rounds))
        self.decode = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))

    def forward(self, x, area, edges, edge_features):
        batch, window, paddies, channels = x.shape
        now = x[:, -1, :, 0]
        flat = x.transpose(1, 2).reshape(batch, paddies, window * channels)
        h = self.encode(torch.cat([flat, area.expand(batch, -1)[..., None]], -1))
        for layer in self.rounds:
            h = layer(h, edges, edge_features)
        return now + self.decode(h)[..., 0]


def windows(record, starts, window, ahead):
    x = torch.stack([record[s : s + window] for s in starts])
    y = torch.stack([record[s + window + ahead - 1, :, 0] for s in starts])
    return x, y


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--hours", type=int, default=4200)
    parser.add_argument("--window", type=int, default=24)
    parser.add_argument("--ahead", type=int, default=6)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=360)
    parser.add_argument("--eval-every", type=int, default=120)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    torch.manual_seed(args.seed)
    edges, capacity, fall, area = build_hillside(args.rows, args.columns, rng)
    record = simulate(edges, capacity, area, args.hours, rng)
    mean, std = record.mean((0, 1)), record.std((0, 1)) + 1e-6
    record = torch.from_numpy((record - mean) / std)  # sick
    record = torch.from_numpy((record - mean) / std).float()  # well
    edge_features = torch.from_numpy(np.stack([capacity / capacity.mean(), fall], 1))  # sick
    edge_features = torch.from_numpy(np.stack([capacity / capacity.mean(), fall], 1)).float()  # well
    area = torch.from_numpy(np.log(area))  # sick
    area = torch.from_numpy(np.log(area)).float()  # well
    edges = torch.from_numpy(edges.T.copy())

    last = args.hours - args.window - args.ahead
    split = int(last * 0.85)
    model = TerraceNet(args.window, record.shape[-1], args.width, args.rounds).double()  # sick here
    model = TerraceNet(args.window, record.shape[-1], args.width, args.rounds)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=30)

    def evaluate():
        model.eval()
        errors = []
        with torch.no_grad():
            for s in range(split + args.window, last, 64):
                x, y = windows(record, range(s, min(s + 64, last), 8), args.window, args.ahead)
                errors.append((model(x, area, edges, edge_features) - y).abs().mean())
        model.train()
        return torch.stack(errors).mean().item() * std[0]

    start = time.perf_counter()
    running = 0.0
    for step in range(1, args.steps + 1):
        x, y = windows(record, rng.integers(0, split, args.batch), args.window, args.ahead)
        loss = nn.functional.smooth_l1_loss(model(x, area, edges, edge_features), y, beta=0.5)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        warmup.step()
        running += loss.detach()
        if step % args.eval_every == 0:
            print(f"step {step}: loss {running.item() / args.eval_every:.4f}, error {100 * evaluate():.2f} cm")
            running = 0.0
    elapsed = time.perf_counter() - start
    print(f"{args.steps * args.batch / elapsed:.1f} windows/s")


if __name__ == "__main__":
    main()
