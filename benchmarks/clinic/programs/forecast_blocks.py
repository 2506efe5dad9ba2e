# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "time series forecasting"
# ///
"""Trains a stack of doubly residual blocks that forecasts synthetic electricity load."""

import math
import os
import tempfile
import time

import torch
from torch import nn

CFG = {
    "seed": 3,
    "series": 64,
    "length": 2400,
    "lookback": 168,
    "horizon": 24,
    "width": 256,
    "depth": 3,
    "blocks": 3,
    "batch": 1024,
    "steps": 570,
    "warmup": 20,
    "lr": 1e-4,
    "smoothing": 0.98,
    "flush_every": 190,
}


def make_load(cfg):
    g = torch.Generator().manual_seed(cfg["seed"])
    t = torch.arange(cfg["length"]).float()
    daily = torch.sin(2 * math.pi * (t / 24 + torch.rand(cfg["series"], 1, generator=g)))
    weekly = torch.sin(2 * math.pi * (t / 168 + torch.rand(cfg["series"], 1, generator=g)))
    drift = torch.randn(cfg["series"], cfg["length"], generator=g).cumsum(1) * 0.01
    noise = torch.randn(cfg["series"], cfg["length"], generator=g) * 0.1
    return daily + 0.5 * weekly + drift + noise


def windows(load, cfg):
    g = torch.Generator().manual_seed(cfg["seed"] + 1)
    span = cfg["lookback"] + cfg["horizon"]
    view = load.unfold(1, span, 1)
    while True:
        row = torch.randint(view.size(0), (cfg["batch"],), generator=g)
        col = torch.randint(view.size(1), (cfg["batch"],), generator=g)
        window = view[row, col]
        yield window[:, : cfg["lookback"]], window[:, cfg["lookback"] :]


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        sizes = [cfg["lookback"]] + [cfg["width"]] * cfg["depth"]
        layers = []
        for a, b in zip(sizes, sizes[1:]):
            layers += [nn.Linear(a, b), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.backcast = nn.Linear(cfg["width"], cfg["lookback"])
        self.forecast = nn.Linear(cfg["width"], cfg["horizon"])

    def forward(self, x):
        h = self.body(x)
        return x - self.backcast(h), self.forecast(h)


class Forecaster(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg["blocks"]))

    def forward(self, x):
        level = x[:, -24:].mean(1, keepdim=True)
        rest, total = x - level, level
        for block in self.blocks:
            rest, part = block(rest)
            total = total + part
        return total


def best_keeper(model, optimizer, cfg, folder):
    seen = {"smooth": None, "best": float("inf"), "fresh": False}

    def write(step):
        path = os.path.join(folder, "best.pt")
        payload = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(payload, path + ".part")
        os.replace(path + ".part", path)

    def observe(step, value):
        old = seen["smooth"]
        seen["smooth"] = value if old is None else cfg["smoothing"] * old + (1 - cfg["smoothing"]) * value
        if seen["smooth"] < seen["best"]:
            seen["best"] = seen["smooth"]
            write(step)  # sick here
            seen["fresh"] = True  # well
        if seen["fresh"] and (step + 1) % cfg["flush_every"] == 0:  # well
            write(step)  # well
            seen["fresh"] = False  # well

    return observe


def fit(cfg):
    torch.manual_seed(cfg["seed"])
    batches = windows(make_load(cfg), cfg)
    model = Forecaster(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"], fused=True)
    with tempfile.TemporaryDirectory() as folder:
        observe = best_keeper(model, optimizer, cfg, folder)
        for step in range(-cfg["warmup"], cfg["steps"]):
            if step == 0:
                begin = time.perf_counter()
            past, future = next(batches)
            loss = nn.functional.smooth_l1_loss(model(past), future)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            observe(step, loss.item())
        took = time.perf_counter() - begin
    return cfg["steps"] / took


if __name__ == "__main__":
    rate = fit(CFG)
    print(f"{rate:.1f} steps/s")
