# /// clinic
# expect = ["PD02"]
# endless = true
# stratum = "twins"
# domain = "traffic forecasting"
# ///
"""Next-hour flow of loop detectors on a ring road from the last day of five-minute counts."""

import math
import time
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

DAY = 288
HORIZON = 12


class Hyper(NamedTuple):
    detectors: int = 40
    days: int = 28
    width: int = 64
    heads: int = 8
    depth: int = 2
    batch: int = 12
    lr: float = 7e-4
    updates: int = 50000


def simulate_counts(h, generator):
    """Two rush hours, weekends, a wave of congestion that travels from detector to detector."""
    t = torch.arange(h.days * DAY, dtype=torch.float32)
    hour = (t % DAY) / DAY * 24
    weekday = ((t // DAY) % 7 < 5).float()
    rush = torch.exp(-(((hour - 8) / 1.5) ** 2)) + 0.8 * torch.exp(-(((hour - 17.5) / 2) ** 2))
    base = 20 + 60 * rush * (0.4 + 0.6 * weekday)
    lag = torch.arange(h.detectors).view(-1, 1)
    wave = 1 + 0.2 * torch.sin(2 * math.pi * (t.view(1, -1) - 2 * lag) / 70)
    mean = base * wave * (0.5 + torch.rand(h.detectors, 1, generator=generator))
    counts = torch.poisson(mean, generator=generator)
    return (counts - counts.mean(1, keepdim=True)) / counts.std(1, keepdim=True)


def clock(index):
    phase = 2 * math.pi * (index % DAY).float() / DAY
    week = 2 * math.pi * (index % (7 * DAY)).float() / (7 * DAY)
    return torch.stack([phase.sin(), phase.cos(), week.sin(), week.cos()], -1)


def draw(counts, h, generator):
    last = counts.shape[1] - DAY - HORIZON
    start = torch.randint(0, last, (h.batch, 1), generator=generator)
    place = torch.randint(0, h.detectors, (h.batch, 1), generator=generator)
    past = start + torch.arange(DAY)
    future = start + DAY + torch.arange(HORIZON)
    x = torch.cat([counts[place, past].unsqueeze(-1), clock(past)], -1)
    return x, place.squeeze(1), counts[place, future]


class DayLayer(nn.TransformerEncoderLayer):
    """Encoder layer that adds a causal mask of its own and a gate on the mixing branch."""

    def __init__(self, width, heads):
        super().__init__(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True, activation="gelu")
        self.gate = nn.Parameter(torch.ones(width))
        self.register_buffer("causal", nn.Transformer.generate_square_subsequent_mask(DAY), persistent=False)

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        y, _ = self.self_attn(x, x, x, attn_mask=self.causal)  # sick here
        y, _ = self.self_attn(x, x, x, attn_mask=self.causal, need_weights=False)  # well
        return self.gate * y


class FlowModel(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.enter = nn.Linear(5, h.width)
        self.place = nn.Embedding(h.detectors, h.width)
        self.layers = nn.ModuleList(DayLayer(h.width, h.heads) for _ in range(h.depth))
        self.leave = nn.Sequential(nn.LayerNorm(h.width), nn.Linear(h.width, 2 * HORIZON))

    def forward(self, x, place):
        z = self.enter(x) + self.place(place).unsqueeze(1)
        for layer in self.layers:
            z = layer(z)
        mean, spread = self.leave(z[:, -1]).chunk(2, -1)
        return mean, F.softplus(spread) + 1e-3


def objective(model, sample):
    x, place, y = sample
    mean, spread = model(x, place)
    return (spread.log() + 0.5 * ((y - mean) / spread) ** 2).mean()


def update(model, optimizer, sample):
    loss = objective(model, sample)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def fit(h):
    generator = torch.Generator().manual_seed(4)
    counts = simulate_counts(h, generator)
    model = FlowModel(h)
    optimizer = torch.optim.Adam(model.parameters(), lr=h.lr)
    every, since = 20, time.perf_counter()
    for n in range(1, h.updates + 1):
        loss = update(model, optimizer, draw(counts, h, generator))
        if n % every == 0:
            now = time.perf_counter()
            print(f"update {n}: nll {loss.item():.3f}, {every / (now - since):.2f} steps/s", flush=True)
            since = now
    return model


if __name__ == "__main__":
    torch.manual_seed(4)
    fit(Hyper())
