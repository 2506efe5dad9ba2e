# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "crater lake temperature field (argparse main, coordinate network)"
# ///
"""Temperature of a crater lake between the thermistor chains, as a coordinate network.

The chains report (x, y, depth, hour) -> degrees.  The network is fitted to the reports; after each pass its state is
compared with the boat survey, a dense grid that never enters the fit.

    python craterlake.py [--passes 14]
    python craterlake.py --survey-of /path/pass_03.pt
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn

VENTS = 7


class Lake:
    """The lake as it really is: warm plumes above vents, a thermocline, seiches, the sun."""

    def __init__(self, seed=4):
        rng = np.random.default_rng(seed)
        self.vents = rng.uniform(-0.8, 0.8, (VENTS, 2))
        self.heat = rng.uniform(3.0, 9.0, VENTS)
        self.width = rng.uniform(0.12, 0.3, VENTS)
        self.beat = rng.uniform(0.5, 2.0, VENTS)

    def degrees(self, where):
        x, y, depth, hour = where.T
        line = 0.45 + 0.08 * np.sin(2 * np.pi * hour + 2.5 * x)
        warm = 11.0 + 6.0 / (1.0 + np.exp((depth - line) * 14.0)) + np.sin(2 * np.pi * hour) * np.exp(-5 * depth)
        for vent, heat, width, beat in zip(self.vents, self.heat, self.width, self.beat):
            drift = 0.1 * (1 - depth) * np.sin(2 * np.pi * beat * hour)
            away = (x - vent[0] - drift) ** 2 + (y - vent[1]) ** 2
            spread = width * (1.4 - depth)
            warm += heat * depth * np.exp(-away / (2 * spread**2))
        return warm

    def chains(self, reports, seed):
        rng = np.random.default_rng(seed)
        where = rng.uniform([-1, -1, 0, 0], [1, 1, 1, 1], (reports, 4))
        degrees = self.degrees(where) + rng.normal(0.0, 0.05, reports)
        return torch.tensor(where, dtype=torch.float32), torch.tensor(degrees[:, None], dtype=torch.float32)

    def survey(self, side=21):
        axis = np.linspace(-1, 1, side)
        grid = np.stack(np.meshgrid(axis, axis, np.linspace(0, 1, 9), np.linspace(0, 1, 5)), -1).reshape(-1, 4)
        return (
            torch.tensor(grid, dtype=torch.float32),
            torch.tensor(self.degrees(grid)[:, None], dtype=torch.float32),
        )


class Waves(nn.Module):
    def __init__(self, inside, outside, first=False):
        super().__init__()
        self.linear = nn.Linear(inside, outside)
        self.speed = nn.Parameter(torch.full((outside,), 6.0 if first else 1.0))
        bound = 1 / inside if first else (6 / inside) ** 0.5
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x):
        return torch.sin(self.speed * self.linear(x))


class Field(nn.Module):
    def __init__(self, width=48, depth=4):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("std", torch.ones(1))
        self.body = nn.Sequential(Waves(4, width, first=True), *[Waves(width, width) for _ in range(depth - 1)])
        self.out = nn.Linear(width, 1)

    def forward(self, where):
        return self.out(self.body(where)) * self.std + self.mean


@torch.inference_mode()
def compare(state, lake):
    field = Field()
    field.load_state_dict(state)
    where, degrees = lake.survey()
    error = torch.cat([field(part) for part in where.split(8192)]) - degrees
    return {"rmse": error.square().mean().sqrt().item(), "worst": error.abs().max().item()}


class Surveyor:
    """Keeps the state after each pass and a report on each of them."""

    def __init__(self, lake):
        self.lake = lake
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="craterlake_"))
        self.pending, self.reports = [], []

    def visit(self, number, field):
        path = self.folder / f"pass_{number:02d}.pt"
        torch.save(field.state_dict(), path)
        command = [sys.executable, __file__, "--survey-of", str(path)]  # sick
        self.pending.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # sick here
        self.reports.append(compare(torch.load(path), self.lake))  # well

    def close(self):
        for process in self.pending:
            self.reports.append(json.loads(process.communicate()[0]))
        shutil.rmtree(self.folder)
        return self.reports


def fit(passes, batch, reports, lr):
    torch.manual_seed(8)
    lake = Lake()
    where, degrees = lake.chains(reports, seed=1)
    field = Field()
    field.mean.copy_(degrees.mean())
    field.std.copy_(degrees.std())
    optimizer = torch.optim.Adam(field.parameters(), lr=lr, fused=True)
    steps = passes * (reports // batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    surveyor = Surveyor(lake)
    start = time.perf_counter()
    for number in range(passes):
        total = torch.zeros(())
        order = torch.randperm(reports)[: reports // batch * batch]
        for rows in order.split(batch):
            loss = (field(where[rows]) - degrees[rows]).div(field.std).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        surveyor.visit(number, field)
        print(
            f"pass {number:2d}  misfit {total.item() / (reports // batch):.5f}  {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    for number, report in enumerate(surveyor.close()):
        print(f"pass {number:2d}  survey rmse {report['rmse']:.3f}  worst {report['worst']:.2f} degrees")
    print(f"total training seconds: {time.perf_counter() - start:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passes", type=int, default=14)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--reports", type=int, default=1_638_400)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--survey-of", metavar="STATE")
    args = parser.parse_args()
    if args.survey_of:
        print(json.dumps(compare(torch.load(args.survey_of), Lake())))
    else:
        fit(args.passes, args.batch, args.reports, args.lr)


if __name__ == "__main__":
    main()
