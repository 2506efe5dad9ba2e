# /// clinic
# expect = ["PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "series"
# sizes = {HIDDEN = [80, 112]}
# severities = {EVERY = [24, 6, 1]}
# ///
"""River levels a day ahead, with a GRU. Writes what it did to run.jsonl and keeps its weights."""

import json
import os
import time
from pathlib import Path

import torch
from torch import nn

HIDDEN = 96
EVERY = 6
BATCH = 48
DAYS = 40


class River(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(6, HIDDEN, batch_first=True)
        self.basin = nn.Sequential(nn.Linear(4000, 600), nn.ReLU(), nn.Linear(600, HIDDEN))
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, days, basin):
        return self.out(self.rnn(days)[0][:, -1] + self.basin(basin))


class Run:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.log = (self.folder / "run.jsonl").open("w")

    def note(self, **facts):
        self.log.write(json.dumps(facts) + "\n")

    def keep(self, step, model, optimizer):
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        with (self.folder / "last.tmp").open("wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        (self.folder / "last.tmp").rename(self.folder / "last.pt")


def main(steps=160):
    torch.manual_seed(7)
    every = EVERY  # sick
    every = 150  # well
    run, model = Run("river"), River()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    days, basins = torch.randn(1000, DAYS, 6).cumsum(1) / 6, torch.randn(1000, 4000)
    level = days[:, -5:].mean((1, 2))[:, None]
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(0, 1000, (BATCH,))
        loss = nn.functional.mse_loss(model(days[rows], basins[rows]), level[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            run.note(step=step, loss=loss.item(), rate=optimizer.param_groups[0]["lr"])
            run.keep(step, model, optimizer)  # here
    print("final loss", round(loss.item(), 4))
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} samples/s")


main()
