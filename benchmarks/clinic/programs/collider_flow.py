# /// clinic
# expect = ["PD18.never-ran"]
# stratum = "twins"
# domain = "particle physics density estimation, normalizing flow (plain PyTorch)"
# ///
"""Density of simulated collider events with a rational-quadratic spline flow (plain PyTorch), for anomaly scores."""

import math
import time

import torch
import torch.nn.functional as F
from torch import nn


FEATURES, BINS, BOUND = 8, 8, 4.0
MIN_SIZE, MIN_SLOPE = 1e-3, 1e-3


def simulate_events(count, seed):
    """Correlated, skewed kinematic features of two-body decays, standardised."""
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(count, FEATURES, generator=generator)
    mixing = torch.randn(FEATURES, FEATURES, generator=torch.Generator().manual_seed(0)) / math.sqrt(FEATURES)
    mass = torch.where(torch.rand(count, 1, generator=generator) < 0.4, 1.5, -0.7)
    events = raw @ mixing + mass * torch.linspace(-1, 1, FEATURES)
    events[:, ::2] = torch.sinh(events[:, ::2] * 0.7)
    events[:, 1::2] = torch.tanh(events[:, 1::2]) + 0.1 * raw[:, 1::2]
    return (events - events.mean(0)) / events.std(0)


def knots(raw):
    sizes = MIN_SIZE + (1 - MIN_SIZE * BINS) * raw.softmax(-1)
    right = 2 * BOUND * sizes.cumsum(-1) - BOUND
    left = F.pad(right[..., :-1], (1, 0), value=-BOUND)
    return left, right - left, right


def spline(x, raw):
    """Monotone rational-quadratic spline on [-BOUND, BOUND], identity outside; returns value and log slope."""
    raw_widths, raw_heights, raw_slopes = raw.split([BINS, BINS, BINS - 1], dim=-1)
    inside = (x > -BOUND) & (x < BOUND)
    clamped = x.clamp(-BOUND + 1e-6, BOUND - 1e-6)
    left, widths, right = knots(raw_widths)
    bottom, heights, _ = knots(raw_heights)
    slopes = F.pad(MIN_SLOPE + F.softplus(raw_slopes + 0.54), (1, 1), value=1.0)
    which = (clamped[..., None] >= right[..., :-1]).sum(-1, keepdim=True)

    def pick(values):
        return values.gather(-1, which).squeeze(-1)

    width, height = pick(widths), pick(heights)
    slope0, slope1 = pick(slopes), pick(slopes[..., 1:])
    t = (clamped - pick(left)) / width
    mean_slope = height / width
    bend = slope0 + slope1 - 2 * mean_slope
    below = mean_slope + bend * t * (1 - t)
    value = pick(bottom) + height * (mean_slope * t * t + slope0 * t * (1 - t)) / below
    slope = mean_slope**2 * (slope1 * t * t + 2 * mean_slope * t * (1 - t) + slope0 * (1 - t) ** 2) / below**2
    return torch.where(inside, value, x), torch.where(inside, slope.log(), torch.zeros_like(x))


class SplineCoupling(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.half = FEATURES // 2
        self.net = nn.Sequential(
            nn.Linear(self.half, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, self.half * (3 * BINS - 1)),
        )
        self.register_buffer("order", torch.arange(FEATURES).roll(self.half))

    def forward(self, x):
        x = x[:, self.order]
        kept, moved = x.split(self.half, dim=1)
        raw = self.net(kept).view(len(x), self.half, 3 * BINS - 1)
        moved, log_slope = spline(moved, raw)
        return torch.cat([kept, moved], 1), log_slope.sum(1)


class SplineFlow(nn.Module):
    def __init__(self, layers=2, hidden=64):
        super().__init__()
        self.couplings = nn.ModuleList(SplineCoupling(hidden) for _ in range(layers))

    def forward(self, x):
        return self.log_prob(x)

    def log_prob(self, x):
        total = x.new_zeros(len(x))
        for coupling in self.couplings:
            x, log_slope = coupling(x)
            total = total + log_slope
        return total - 0.5 * (x**2).sum(1) - 0.5 * FEATURES * math.log(2 * math.pi)


def train(flow, events, held_out, steps, batch_size=8192, lr=2e-3):
    compiled = torch.compile(flow)  # here
    optimizer = torch.optim.Adam(flow.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    start = time.perf_counter()
    for step in range(1, steps + 1):
        batch = events[torch.randint(len(events), (batch_size,))]
        loss = -compiled.log_prob(batch).mean()  # sick here
        loss = -compiled(batch).mean()  # well
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            with torch.no_grad():
                score = flow.log_prob(held_out).mean().item()
            print(
                f"step {step}: train {-loss.item():.3f}, held out {score:.3f} nats, "
                f"{(time.perf_counter() - start) / step * 1000:.0f} ms/step",
                flush=True,
            )


def main():
    torch.manual_seed(17)
    events, held_out = simulate_events(200_000, seed=1), simulate_events(4096, seed=2)
    flow = SplineFlow()
    train(flow, events, held_out, steps=900)
    oddest = flow.log_prob(held_out).detach().topk(5, largest=False).indices
    print("oddest events:", oddest.tolist())


if __name__ == "__main__":
    main()
