# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "dunes by optimal transport"
# ///
"""Prototype: a generator of dune profiles, fitted by entropic optimal transport in place of an adversary.

A profile is the height of the sand along a line: a few dunes with a gentle windward and a steep lee side.  The generator maps
noise to profiles; its loss is the transport cost to a batch of real ones, less half of the cost from the fakes to themselves.
The real ones' own term carries no gradient and is left out.  The result compares crest counts and steepness with real sand.
"""

import time

import torch
from torch import nn

SEED = 23
POINTS = 32
NOISE = 16
PROFILES = 6000
BATCH = 256
STEPS = 300
ROUNDS = 30  # Sinkhorn rounds per cost matrix
BLUR = 0.05  # entropic temperature, as a share of the mean cost

DEBIAS = True  # ablation: without the fakes' own term the profiles shrink to the mean
SLOPES = True  # ablation: compare heights only


def blow_dunes(n, generator):
    """n profiles, each the upper envelope of three asymmetric dunes."""
    line = torch.linspace(0, 1, POINTS)
    crest = torch.rand(n, 3, 1, generator=generator)
    tall = 0.4 + 0.6 * torch.rand(n, 3, 1, generator=generator)
    reach = 0.12 + 0.2 * torch.rand(n, 3, 1, generator=generator)
    along = line - crest
    windward = (1 + along / reach).clamp(0, 1)
    lee = (1 - along / (0.3 * reach)).clamp(0, 1)
    heights = (tall * torch.where(along < 0, windward, lee)).amax(1)
    ripple = 0.02 * torch.sin(60 * line + 6.28 * torch.rand(n, 1, generator=generator))
    return heights + ripple


class Wind(nn.Module):
    """Noise in, profile out."""

    def __init__(self, hidden=768):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(NOISE, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, POINTS)
        )

    def forward(self, z):
        return self.net(z)


def describe(profiles):
    """What the cost compares: the heights and, beside them, the slopes over two points."""
    if not SLOPES:
        return profiles
    return torch.cat([profiles, 2.0 * (profiles[:, 2::2] - profiles[:, :-2:2])], 1)


def pair_costs(a, b):
    """Half the squared distance between every row of a and every row of b."""
    far = (a[:, None, :] - b[None, :, :]).square().sum(-1)  # sick here
    far = (a.square().sum(1)[:, None] + b.square().sum(1)[None, :] - 2 * a @ b.T).clamp_min(0)  # well
    return 0.5 * far


@torch.no_grad()
def plan_between(cost):
    """Transport plan of two uniform clouds by Sinkhorn in the log domain."""
    heat = BLUR * cost.mean()
    score = -cost / heat
    back = score.T.contiguous()
    log_n = torch.log(torch.tensor(float(len(cost))))
    f = torch.zeros(cost.shape[0])
    g = torch.zeros(cost.shape[1])
    for _ in range(ROUNDS):
        f = -torch.logsumexp(score + g, 1) - log_n
        g = -torch.logsumexp(back + f, 1) - log_n
    return torch.exp(score + f[:, None] + g)


@torch.no_grad()
def plan_within(cost):
    """The same for a cloud and itself: one potential serves both sides, averaged to keep it from swinging."""
    heat = BLUR * cost.mean()
    score = -cost / heat
    log_n = torch.log(torch.tensor(float(len(cost))))
    f = torch.zeros(cost.shape[0])
    for _ in range(ROUNDS):
        f = 0.5 * (f - torch.logsumexp(score + f, 1) - log_n)
    return torch.exp(score + f[:, None] + f)


def sand_moved(fake, real):
    """Transport loss; by the envelope theorem the plans may be held fixed while the costs are differentiated."""
    a, b = describe(fake), describe(real)
    across = pair_costs(a, b)
    loss = (plan_between(across.detach()) * across).sum()
    if DEBIAS:
        within = pair_costs(a, a)
        loss = loss - 0.5 * (plan_within(within.detach()) * within).sum()
    return loss


def crests(profiles):
    """Mean number of clear local maxima per profile."""
    inner = profiles[:, 2:-2]
    top = (inner > profiles[:, :-4] + 0.08) & (inner > profiles[:, 4:] + 0.02)
    starts = top[:, 1:] & ~top[:, :-1]
    return starts.sum(1).float().mean().item()


def main():
    torch.manual_seed(SEED)
    sand = blow_dunes(PROFILES, torch.Generator().manual_seed(SEED))
    wind = Wind()
    optimizer = torch.optim.Adam(wind.parameters(), lr=1e-3, betas=(0.5, 0.95), fused=True)
    losses = torch.zeros(STEPS)
    began = time.perf_counter()
    for step in range(STEPS):
        real = sand[torch.randint(PROFILES, (BATCH,))]
        loss = sand_moved(wind(torch.randn(BATCH, NOISE)), real)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[step] = loss.detach()
    took = time.perf_counter() - began
    with torch.no_grad():
        fake = wind(torch.randn(1000, NOISE))
    steep = fake.diff(dim=1).abs().mean().item(), sand.diff(dim=1).abs().mean().item()
    print(f"loss {losses[:20].mean():.3f} -> {losses[-20:].mean():.3f}")
    print(f"crests {crests(fake):.2f} (real {crests(sand):.2f}), steepness {steep[0]:.4f} (real {steep[1]:.4f})")
    print(f"{STEPS / took:.2f} steps/s")


if __name__ == "__main__":
    main()
