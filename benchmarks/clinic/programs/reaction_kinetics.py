# /// clinic
# stratum = "placebo"
# domain = "chemical kinetics"
# sizes = {WIDTH = [320, 416], STAGES = [9, 11]}
# ///
"""Fit a neural rate law to concentration traces by differentiating through an RK4 integrator."""

import argparse
import time

import torch
import torch.nn as nn

WIDTH = 368
STAGES = 10
SPECIES = 9
REACTIONS = 14


def true_mechanism(seed=2):
    """Random mass-action network: A + B -> C with Arrhenius constants."""
    g = torch.Generator().manual_seed(seed)
    left = torch.stack([torch.randperm(SPECIES, generator=g)[:2] for _ in range(REACTIONS)])
    right = torch.randint(SPECIES, (REACTIONS,), generator=g)
    change = torch.zeros(REACTIONS, SPECIES)
    change[torch.arange(REACTIONS), left[:, 0]] -= 1
    change[torch.arange(REACTIONS), left[:, 1]] -= 1
    change[torch.arange(REACTIONS), right] += 2
    speed = 0.3 + torch.rand(REACTIONS, generator=g)
    barrier = torch.rand(REACTIONS, generator=g)

    def rates(c, temperature):
        k = speed * torch.exp(-barrier / temperature)
        return (k * c[:, left[:, 0]] * c[:, left[:, 1]]) @ change

    return rates


def rk4(field, c, temperature, dt):
    k1 = field(c, temperature)
    k2 = field(c + 0.5 * dt * k1, temperature)
    k3 = field(c + 0.5 * dt * k2, temperature)
    k4 = field(c + dt * k3, temperature)
    return c + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def solve(field, c, temperature, dt, stages):
    trace = []
    for _ in range(stages):
        c = rk4(field, c, temperature, dt)
        trace.append(c)
    return torch.stack(trace, dim=1)


class RateLaw(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(SPECIES + 1, width),
            nn.Tanh(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, SPECIES),
        )

    def forward(self, c, temperature):
        return self.net(torch.cat([c, temperature], dim=1))


@torch.no_grad()
def make_traces(n, dt, seed):
    g = torch.Generator().manual_seed(seed)
    c0 = torch.rand(n, SPECIES, generator=g)
    temperature = 0.5 + torch.rand(n, 1, generator=g)
    law, c, kept = true_mechanism(), c0, []
    for _ in range(STAGES):
        for _ in range(4):
            c = rk4(law, c, temperature, dt / 4)
        kept.append(c)
    return c0, temperature, torch.stack(kept, dim=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--traces", type=int, default=8192)
    ap.add_argument("--batch", type=int, default=192)
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--dt", type=float, default=0.15)
    ap.add_argument("--lr", type=float, default=1e-3)
    args = ap.parse_args()
    torch.manual_seed(0)

    c0, temperature, target = make_traces(args.traces, args.dt, seed=7)
    held = [t[:512] for t in (c0, temperature, target)]
    c0, temperature, target = (t[512:] for t in (c0, temperature, target))
    law = RateLaw(WIDTH)
    opt = torch.optim.Adam(law.parameters(), lr=args.lr)

    done, begin = 0, 0.0
    for epoch in range(args.epochs):
        if epoch == 1:
            begin = time.perf_counter()
        mean = 0.0
        batches = torch.randperm(len(c0)).split(args.batch)
        for pick in batches:
            guess = solve(law, c0[pick], temperature[pick], args.dt, STAGES)
            loss = (guess - target[pick]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            mean += loss.item() / len(batches)
            if epoch:
                done += len(pick)
        with torch.no_grad():
            error = (solve(law, held[0], held[1], args.dt, STAGES) - held[2]).abs().max().item()
        print(f"epoch {epoch}  mse {mean:.2e}  worst held-out error {error:.3f}", flush=True)
    print(f"finished: {done / (time.perf_counter() - begin):.1f} traces/s")


if __name__ == "__main__":
    main()
