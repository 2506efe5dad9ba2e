# /// clinic
# stratum = "decoys"
# domain = "molecules"
# ///
"""Recover a pair potential from trajectories of argon clusters by differentiating through the integrator.

The measured set is sixteen short trajectories; each step uses all of them. A run is only accepted when the
integrator is reversible to 1e-9 (forward, then backward, back at the start), as the lab's protocol asks.
"""

import time

import torch
from torch import nn

torch.set_default_dtype(torch.float64)

CLUSTERS, ATOMS, DT, MOVES = 16, 7, 0.004, 24


class PairPotential(nn.Module):
    """Lennard-Jones with free depth and reach, and a soft correction."""

    def __init__(self, depth=0.8, reach=1.05):
        super().__init__()
        self.depth = nn.Parameter(torch.tensor(depth))
        self.reach = nn.Parameter(torch.tensor(reach))
        self.soft = nn.Parameter(torch.tensor(0.0))

    def forces(self, places):
        gap = places[:, :, None] - places[:, None]
        square = gap.square().sum(-1) + self.eye
        s6 = (self.reach**2 / square) ** 3
        pull = 24 * self.depth * (2 * s6 * s6 - s6) / square + self.soft * torch.exp(-square)
        return ((pull * (1 - self.eye)).unsqueeze(-1) * gap).sum(2)

    eye = torch.eye(ATOMS)


def verlet(potential, places, speeds, moves, dt):
    push = potential.forces(places)
    for _ in range(moves):
        speeds = speeds + 0.5 * dt * push
        places = places + dt * speeds
        push = potential.forces(places)
        speeds = speeds + 0.5 * dt * push
    return places, speeds


def starting_points():
    grid = torch.cartesian_prod(*[torch.arange(2.0)] * 3)[:ATOMS] * 1.2
    places = grid + 0.03 * torch.randn(CLUSTERS, ATOMS, 3)
    speeds = 0.3 * torch.randn(CLUSTERS, ATOMS, 3)
    return places, speeds - speeds.mean(1, keepdim=True)


def reversible(potential, places, speeds):
    with torch.no_grad():
        p, v = verlet(potential, places, speeds, 10 * MOVES, DT)
        p, v = verlet(potential, p, -v, 10 * MOVES, DT)
    return (p - places).abs().max().item()


def main(steps=700, skip=10):
    torch.manual_seed(8)
    truth, model = PairPotential(1.0, 1.0), PairPotential()
    places, speeds = starting_points()
    with torch.no_grad():
        seen_places, seen_speeds = verlet(truth, places, speeds, MOVES, DT)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    for step in range(steps):
        if step == skip:
            clock = time.perf_counter()
        p, v = verlet(model, places, speeds, MOVES, DT)
        loss = (p - seen_places).square().mean() + DT * (v - seen_speeds).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 200 == 0:
            print(f"{step + 1}: loss {loss.item():.3e} depth {model.depth.item():.5f} reach {model.reach.item():.5f}")
    rate = (steps - skip) * CLUSTERS / (time.perf_counter() - clock)

    off = reversible(model, places, speeds)
    if off > 1e-9:
        raise SystemExit(f"not reversible: {off:.1e}")
    print(f"reversible to {off:.1e}")
    print(f"{rate:.1f} trajectories/s")


if __name__ == "__main__":
    main()
