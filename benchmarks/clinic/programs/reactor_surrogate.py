# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "online surrogate of a stirred-tank reactor with a running simulator"
# ///
"""Fit a surrogate of a stirred-tank reactor while the simulator keeps running.

Each round the simulator adds a handful of new operating points; the network then takes
a gradient step on a random draw from all points so far.  The surrogate maps an operating
point to the temperature profile over time and is meant for a model predictive controller.
"""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


ROUNDS = 1400
POINTS_PER_ROUND = 12
BATCH = 256
PROFILE = 60

# feed concentration, feed temperature, flow, jacket temperature, start concentration, start temperature
LOW = np.array([0.6, 330.0, 0.6, 280.0, 0.2, 320.0])
HIGH = np.array([1.2, 360.0, 1.6, 310.0, 0.9, 370.0])


def simulate(points, steps=180, horizon=4.0):
    """Explicit Euler for an exothermic first-order reaction, all points at once."""
    feed, feed_temperature, flow, jacket, concentration, temperature = points.T.copy()
    dt = horizon / steps
    every = steps // PROFILE
    profile = np.empty((len(points), PROFILE))
    for step in range(steps):
        rate = 7.2e10 * np.exp(-8750.0 / temperature) * concentration
        change = flow * (feed - concentration) - rate
        heating = flow * (feed_temperature - temperature) + 209.0 * rate + 2.1 * (jacket - temperature)
        concentration = np.clip(concentration + dt * change, 0.0, None)
        temperature = np.clip(temperature + dt * heating, 250.0, 520.0)
        if (step + 1) % every == 0:
            profile[:, step // every] = temperature
    return profile


def scaled(points, profile):
    x = (points - LOW) / (HIGH - LOW) * 2.0 - 1.0
    y = (profile - 370.0) / 40.0
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


def make_surrogate(width=192, depth=3):
    blocks = [Residual(width) for _ in range(depth)]
    return nn.Sequential(nn.Linear(len(LOW), width), *blocks, nn.Linear(width, PROFILE))


def draw(points, profiles, random):
    """A random batch, with replacement, from everything simulated so far."""
    chosen = torch.randint(len(points), (BATCH,), generator=random)
    x = torch.stack(points)[chosen]  # sick here
    y = torch.stack(profiles)[chosen]  # sick here
    places = chosen.tolist()  # well
    x = torch.stack([points[i] for i in places])  # well
    y = torch.stack([profiles[i] for i in places])  # well
    return x, y


def learning_rate(round_number, peak=1.5e-3, warmup=50):
    if round_number < warmup:
        return peak * (round_number + 1) / warmup
    return peak * 0.5 * (1 + math.cos(math.pi * (round_number - warmup) / (ROUNDS - warmup)))


@torch.no_grad()
def error_in_kelvin(surrogate, x, y):
    return (surrogate(x) - y).abs().mean().item() * 40.0


def train():
    torch.manual_seed(0)
    operator = np.random.default_rng(12)
    random = torch.Generator().manual_seed(1)
    surrogate = make_surrogate()
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=1e-3)

    check_points = operator.uniform(LOW, HIGH, (512, len(LOW)))
    check = scaled(check_points, simulate(check_points))

    points, profiles = [], []
    start = time.monotonic()
    for round_number in range(ROUNDS):
        fresh = operator.uniform(LOW, HIGH, (POINTS_PER_ROUND, len(LOW)))
        x, y = scaled(fresh, simulate(fresh))
        points.extend(x.unbind())
        profiles.extend(y.unbind())

        x, y = draw(points, profiles, random)
        loss = F.smooth_l1_loss(surrogate(x), y, beta=0.1)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(round_number)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        if (round_number + 1) % 100 == 0:
            print(
                f"round {round_number + 1:5d}  points {len(points):6d}  loss {loss.item():.4f}  "
                f"error {error_in_kelvin(surrogate, *check):6.2f} K  {time.monotonic() - start:5.1f} s",
                flush=True,
            )
    return surrogate


if __name__ == "__main__":
    train()
