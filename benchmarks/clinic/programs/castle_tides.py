# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "sandcastles"
# ///
"""How wet was the sand? Amortised inference of sand properties from a castle before and after the tide.

A differentiable height-field simulator (avalanching above the angle of repose, wave wash below the tide line, drying)
maps (castle, sand) to the castle a few minutes later. An encoder guesses the sand from the pair of maps and is
trained only through the simulator, by comparing the simulated remains with the observed ones.
"""

import time
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

GRID = 128
MINUTES = 3
CASTLES = 1056
BATCH = 24
EPOCHS = 4
SLOPES = 4


class Sand(NamedTuple):
    repose: torch.Tensor  # tangent of the steepest stable slope of dry sand
    cohesion: torch.Tensor  # extra slope granted by moisture
    wash: torch.Tensor  # share of sand a wave carries off
    drying: torch.Tensor  # moisture lost per minute


PRIOR_LOW = torch.tensor([0.25, 0.20, 0.05, 0.02])
PRIOR_SPAN = torch.tensor([0.35, 0.60, 0.25, 0.13])


def sand_from_unit(unit):
    values = PRIOR_LOW + PRIOR_SPAN * unit
    return Sand(*(v.view(-1, 1, 1) for v in values.unbind(-1)))


def build_castles(count, generator):
    """A keep, up to five round towers and a wall with a gap on a gently sloping beach."""
    axis = torch.linspace(-1.0, 1.0, GRID)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    height = (0.15 * (1.0 - y)).expand(count, GRID, GRID).clone()
    radius = (x.square() + y.square()).sqrt()
    wall_at = 0.55 + 0.15 * torch.rand(count, 1, 1, generator=generator)
    height += 0.5 * torch.exp(-(((radius - wall_at) / 0.06) ** 2)) * ((x.abs() > 0.12) | (y < 0)).float()
    for _ in range(5):
        centre = 1.2 * torch.rand(count, 2, 1, 1, generator=generator) - 0.6
        size = 0.08 + 0.1 * torch.rand(count, 1, 1, generator=generator)
        tall = 1.2 * torch.rand(count, 1, 1, generator=generator)
        far = ((x - centre[:, 0]) ** 2 + (y - centre[:, 1]) ** 2).sqrt()
        height += tall * torch.sigmoid((size - far) / 0.03)
    return height


def avalanche(height, stable, rate=0.2):
    """Move sand down every slope steeper than the stable one, along both axes."""
    drop_x = height[:, :, 1:] - height[:, :, :-1]
    drop_y = height[:, 1:, :] - height[:, :-1, :]
    limit_x = 0.5 * (stable[:, :, 1:] + stable[:, :, :-1])
    limit_y = 0.5 * (stable[:, 1:, :] + stable[:, :-1, :])
    flow_x = rate * drop_x.sign() * F.relu(drop_x.abs() - limit_x)
    flow_y = rate * drop_y.sign() * F.relu(drop_y.abs() - limit_y)
    height = height + F.pad(flow_x, (0, 1)) - F.pad(flow_x, (1, 0))
    return height + F.pad(flow_y, (0, 0, 0, 1)) - F.pad(flow_y, (0, 0, 1, 0))


def simulate(height, sand, minutes=MINUTES):
    moisture = torch.ones_like(height)
    cell = SLOPES / GRID
    for minute in range(minutes):
        tide = 0.05 + 0.12 * minute
        wet = torch.sigmoid((tide - height) / 0.04)
        moisture = moisture * (1.0 - sand.drying * (1.0 - wet)) + 0.2 * wet * (1.0 - moisture)
        height = height - sand.wash * wet * F.relu(height - 0.02)
        stable = cell * (sand.repose + sand.cohesion * moisture * (1.0 - wet))
        height = avalanche(height, stable)
    return height


class SandGuess(nn.Module):
    """A small convolutional encoder of both maps, then an MLP to the four properties in their prior range."""

    def __init__(self, width=16, hidden=128):
        super().__init__()
        self.maps = nn.Sequential(
            nn.Conv2d(4, width, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 2 * width, 3, padding=1),
            nn.SiLU(),
        )
        self.body = nn.Sequential(
            nn.Linear(2 * width * 16, hidden),
            nn.LayerNorm(hidden),
            nn.SiLU(),
            nn.Linear(hidden, 4),
        )

    def forward(self, before, after):
        lost = before - after
        rough = after[:, 1:, 1:] - after[:, :-1, :-1]
        maps = torch.stack([before, after, lost, F.pad(rough.square(), (1, 0, 1, 0))], dim=1)
        return torch.sigmoid(self.body(F.adaptive_avg_pool2d(self.maps(maps), 4).flatten(1)))


def remains_loss(simulated, observed, before):
    changed = 0.1 + (before - observed).abs()
    fine = (changed * (simulated - observed).square()).mean()
    volume = (simulated.sum((1, 2)) - observed.sum((1, 2))).square().mean() / GRID**3
    return fine + volume


def main():
    torch.manual_seed(0)
    torch.autograd.set_detect_anomaly(True)  # sick here
    generator = torch.Generator().manual_seed(1)

    before = build_castles(CASTLES, generator)
    truth = torch.rand(CASTLES, 4, generator=generator)
    with torch.no_grad():
        parts = zip(before.split(64), truth.split(64))
        after = torch.cat([simulate(castles, sand_from_unit(unit)) for castles, unit in parts])
        after += 0.003 * torch.randn(after.shape, generator=generator)
    held_out = CASTLES // 10
    learn = torch.arange(held_out, CASTLES)

    net = SandGuess()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)

    seen, start = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        total, batches = 0.0, 0
        order = learn[torch.randperm(len(learn), generator=generator)]
        for rows in order.split(BATCH):
            guess = net(before[rows], after[rows])
            loss = remains_loss(simulate(before[rows], sand_from_unit(guess)), after[rows], before[rows])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
            batches += 1
            seen += len(rows)
        schedule.step()
        with torch.no_grad():
            error = (net(before[:held_out], after[:held_out]) - truth[:held_out]).abs() * PRIOR_SPAN
        listed = ", ".join(f"{name} {value:.3f}" for name, value in zip(Sand._fields, error.mean(0).tolist()))
        print(f"epoch {epoch}: remains {total / batches:.2e}; error of {listed}")
    print(f"{seen / (time.perf_counter() - start):.1f} castles/s")


if __name__ == "__main__":
    main()
