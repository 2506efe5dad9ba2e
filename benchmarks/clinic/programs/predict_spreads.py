# /// clinic
# expect = ["PD18.recompiles"]
# stratum = "twins"
# domain = "finance, walk-forward refits of a mixer over time and instruments"
# ///
"""Walk-forward test of a bid-ask spread model: every trading day a network is refitted on the last days and judged on the next.

Quotes of 24 instruments are simulated (slow factors, jumps, intraday seasonality). The network is a mixer over time and
instruments that predicts the next spreads; it is compiled, since the desk refits the same network for every day of two
years. Here: the first weeks only. A refit starts from a network of its own, so that the days can be compared.
"""

import functools
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


INSTRUMENTS, HISTORY, DAY = 24, 48, 96


def simulate_quotes(length, seed):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(length, 4, generator=generator)
    kernel = torch.exp(-torch.arange(40.0) / 8).view(1, 1, -1)
    factors = F.conv1d(factors.T.unsqueeze(1), kernel, padding=39)[:, 0, :length].T
    loadings = torch.randn(4, INSTRUMENTS, generator=generator) * 0.4
    phase = torch.rand(INSTRUMENTS, generator=generator) * 6.28
    season = torch.sin(2 * math.pi * torch.arange(length).unsqueeze(1) / DAY + phase)
    jumps = (torch.rand(length, INSTRUMENTS, generator=generator) < 0.01) * 3.0
    noise = torch.randn(length, INSTRUMENTS, generator=generator) * 0.2
    return factors @ loadings + season + jumps + noise


def rms_scale(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + 1e-6) * weight


def snake(x, frequency):
    """Periodic activation: suits series with a daily season."""
    return x + torch.sin(frequency * x).pow(2) / (frequency + 1e-3)


class MixerBlock(nn.Module):
    def __init__(self, width, history):
        super().__init__()
        self.scale_time = nn.Parameter(torch.ones(width))
        self.scale_feature = nn.Parameter(torch.ones(width))
        self.frequency = nn.Parameter(torch.ones(history))
        self.time = nn.Linear(history, history)
        self.gate = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.residual = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x):
        mixed = self.time(rms_scale(x, self.scale_time).transpose(1, 2))
        x = x + snake(mixed, self.frequency).transpose(1, 2)
        value, gate = self.gate(rms_scale(x, self.scale_feature)).chunk(2, dim=-1)
        return x + self.residual * self.out(value * torch.sigmoid(gate) * torch.tanh(gate))


class SpreadMixer(nn.Module):
    def __init__(self, width=64, depth=10):
        super().__init__()
        self.lift = nn.Linear(INSTRUMENTS, width)
        self.blocks = nn.ModuleList([MixerBlock(width, HISTORY) for _ in range(depth)])
        self.scale = nn.Parameter(torch.ones(width))
        self.head = nn.Linear(width, 2 * INSTRUMENTS)

    def forward(self, quotes):
        level = quotes.mean(dim=1, keepdim=True)
        deviation = quotes.std(dim=1, keepdim=True) + 1e-2
        x = self.lift((quotes - level) / deviation)
        for block in self.blocks:
            x = block(x)
        center, spread = self.head(rms_scale(x, self.scale).mean(dim=1)).chunk(2, dim=-1)
        return (level + deviation * center.unsqueeze(1)).squeeze(1), F.softplus(spread) + 1e-3


def likelihood_loss(prediction, target):
    """Student-t with four degrees of freedom, robust to jumps."""
    center, spread = prediction
    return (2.5 * torch.log1p(((target - center) / spread) ** 2 / 4) + spread.log()).mean()


def gather_windows(series, ends):
    """History before each end and the value at the end."""
    return series[ends.unsqueeze(1) + torch.arange(-HISTORY, 0)], series[ends]


def new_network(day):
    torch.manual_seed(100 + day)
    torch.compiler.reset()  # sick here
    model = SpreadMixer()
    return model, torch.compile(model)  # here


def refit(series, begin, end, day, steps, batch):
    model, compiled = new_network(day)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=steps)
    total = torch.zeros(())
    for _ in range(steps):
        history, target = gather_windows(series, torch.randint(begin + HISTORY, end, (batch,)))
        loss = likelihood_loss(compiled(history), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.detach()
    return model, total.item() / steps


@torch.no_grad()
def judge(model, series, begin, end):
    history, target = gather_windows(series, torch.arange(begin, end))
    return likelihood_loss(model(history), target).item()


def walk_forward(series, days, steps, batch, past=20 * DAY):
    started, scores = time.time(), []
    fit = functools.partial(refit, series, steps=steps, batch=batch)
    for day in range(days):
        begin, end = day * DAY, day * DAY + past
        model, train_loss = fit(begin, end, day)
        scores.append(judge(model, series, end, end + DAY))
        print(
            f"day {day:3d}  train {train_loss:.4f}  next day {scores[-1]:.4f}  {time.time() - started:.1f} s",
            flush=True,
        )
    return scores


if __name__ == "__main__":
    quotes = simulate_quotes(50 * DAY, seed=4)
    scores = walk_forward(quotes, days=26, steps=12, batch=96)
    print(f"mean loss on the next day {sum(scores) / len(scores):.4f}")
