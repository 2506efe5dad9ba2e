# /// clinic
# expect = ["PD18"]
# stratum = "twins"
# domain = "reaction fronts"
# ///
"""Learns the unknown rates of a two-species reaction-diffusion film from pairs of camera frames."""

import time

import torch
from torch import nn

GRID, SUBSTEPS, BATCH = 128, 3, 12
STEPS = 1800


def laplacian(u):
    return torch.roll(u, 1, -1) + torch.roll(u, -1, -1) + torch.roll(u, 1, -2) + torch.roll(u, -1, -2) - 4.0 * u


def true_film(u, v, substeps):
    for _ in range(substeps):
        uvv = u * v * v
        u, v = (
            u + 0.2 * laplacian(u) - uvv + 0.035 * (1 - u),
            v + 0.1 * laplacian(v) + uvv - 0.095 * v,
        )
    return u, v


class Camera:
    """Keeps a film running for each lane of the batch and hands out frame pairs with noise."""

    def __init__(self, seed=0):
        self.g = torch.Generator().manual_seed(seed)
        self.u = torch.ones(BATCH, GRID, GRID)
        self.v = torch.zeros(BATCH, GRID, GRID)
        for lane in range(BATCH):
            for _ in range(8):
                r, c = torch.randint(GRID - 12, (2,), generator=self.g).tolist()
                self.u[lane, r : r + 12, c : c + 12] = 0.5
                self.v[lane, r : r + 12, c : c + 12] = 0.3
        self.u, self.v = true_film(self.u, self.v, 60)

    def pair(self):
        before = torch.stack([self.u, self.v])
        self.u, self.v = true_film(self.u, self.v, SUBSTEPS)
        after = torch.stack([self.u, self.v])
        noise = 0.005 * torch.randn(before.shape, generator=self.g)
        return before + noise, after


class Warmed(nn.Module):
    """A module whose correction terms are faded in over its first calls in training."""

    def __init__(self, warmup):
        super().__init__()
        self.warmup = warmup
        self.calls = 0  # sick
        self.register_buffer("calls", torch.zeros(()))  # well

    def fade(self):
        if self.training:
            self.calls += 1  # sick here
            self.calls.add_(1)  # well
        return min(self.calls / self.warmup, 1.0)  # sick
        return torch.clamp(self.calls / self.warmup, max=1.0)  # well


class FilmModel(Warmed):
    def __init__(self, warmup=200, terms=2):
        super().__init__(warmup)
        self.spread = nn.Parameter(torch.tensor([-2.5, -2.5]))
        self.feed = nn.Parameter(torch.tensor(-2.0))
        self.decay = nn.Parameter(torch.tensor(-2.0))
        self.power = nn.Parameter(torch.tensor(0.5))
        self.freq = nn.Parameter(torch.randn(terms))
        self.gain_u = nn.Parameter(torch.zeros(terms))
        self.gain_v = nn.Parameter(torch.zeros(terms))

    def correction(self, u, v, gain):
        out = torch.zeros_like(u)
        for k in range(len(gain)):
            out = out + gain[k] * torch.tanh(self.freq[k] * (u - v)) * (1 - u * v)
        return out

    def forward(self, frame):
        u, v = frame[0], frame[1]
        du, dv = torch.exp(self.spread)
        feed, decay = torch.exp(self.feed), torch.exp(self.decay)
        fade = self.fade()
        for _ in range(SUBSTEPS):
            react = self.power * u * v * v
            extra_u = fade * self.correction(u, v, self.gain_u)
            extra_v = fade * self.correction(u, v, self.gain_v)
            u, v = (
                u + du * laplacian(u) - react + feed * (1 - u) + extra_u,
                v + dv * laplacian(v) + react - decay * v + extra_v,
            )
        return torch.stack([u, v])


def main():
    torch.manual_seed(2)
    camera = Camera()
    model = FilmModel()
    film = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.997)
    began, running = None, 0.0
    for step in range(1, STEPS + 1):
        before, after = camera.pair()
        error = film(before) - after
        loss = (error.square() / (1e-3 + after.var())).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        running = 0.98 * running + 0.02 * loss.item()
        if step == 5:
            began = time.perf_counter()
        if step % 100 == 0:
            print(f"step {step} loss {running:.5f}", flush=True)
    rate = (STEPS - 5) / (time.perf_counter() - began)
    spread = torch.exp(model.spread).tolist()
    print(f"spread {spread[0]:.3f} {spread[1]:.3f} feed {model.feed.exp().item():.4f}")
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
