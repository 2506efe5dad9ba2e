# /// clinic
# expect = ["PD07"]
# stratum = "twins"
# domain = "survival analysis (closures, config dict)"
# ///
"""Train a deep Cox proportional hazards model on simulated patients."""

import time

import numpy as np
import torch
import torch.nn as nn

STEPS = 800
WARMUP = 20
CONFIG = {
    "patients": 40_000,
    "covariates": 96,
    "layers": [384, 384, 384],
    "dropout": 0.1,
    "batch": 768,
    "lr": 1e-3,
    "l2": 1e-4,
    "seed": 11,
}


def simulate(cfg):
    rng = np.random.default_rng(cfg["seed"])
    x = rng.normal(size=(cfg["patients"], cfg["covariates"]))
    risk = np.tanh(x[:, 0] * x[:, 1]) + 0.5 * x[:, 2]
    event = rng.exponential(np.exp(-risk))
    censor = rng.exponential(2.0, size=len(x))
    return {"x": x, "time": np.minimum(event, censor), "event": event <= censor}


def standardise(frame):
    x = frame["x"]
    return {**frame, "x": (x - x.mean(0)) / x.std(0)}


def sampler(frame, cfg):
    rng = np.random.default_rng(cfg["seed"] + 1)
    columns = {k: np.ascontiguousarray(v) for k, v in frame.items()}

    def draw():
        idx = rng.integers(len(columns["time"]), size=cfg["batch"])
        idx = idx[np.argsort(-columns["time"][idx])]
        x = torch.from_numpy(columns["x"][idx])  # sick
        x = torch.from_numpy(columns["x"][idx]).float()  # well
        return x, torch.from_numpy(columns["event"][idx])

    return draw


def build(cfg):
    sizes = [cfg["covariates"], *cfg["layers"]]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.SELU(), nn.Dropout(cfg["dropout"])]
    return nn.Sequential(*layers, nn.Linear(sizes[-1], 1, bias=False))


def partial_likelihood(score, event):
    log_risk = torch.logcumsumexp(score, 0)
    return -((score - log_risk) * event).sum() / event.sum().clamp_min(1)


def make_step(cfg, draw):
    model = build(cfg).double()  # sick here
    model = build(cfg)  # well
    opt = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)

    def step():
        x, event = draw()
        loss = partial_likelihood(model(x).squeeze(-1), event)
        loss = loss + cfg["l2"] * sum(p.square().sum() for p in model.parameters() if p.ndim > 1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        return loss.item()

    return step


def run(cfg):
    torch.manual_seed(cfg["seed"])
    step = make_step(cfg, sampler(standardise(simulate(cfg)), cfg))
    for _ in range(WARMUP):
        step()
    start = time.perf_counter()
    curve = [step() for _ in range(STEPS - WARMUP)]
    return len(curve) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{run(CONFIG):.1f} steps/s")
