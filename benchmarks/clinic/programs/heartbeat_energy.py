# /// clinic
# expect = ["PD17.discarded-gradients"]
# stratum = "twins"
# domain = "medicine"
# ///
"""Energy model of single heart beats (one lead), trained by contrastive divergence with short Langevin chains and a
pool of persistent samples. The energy later flags beats that look like none of the normal ones.

    python heartbeat_energy.py [sick|well]
"""

import time

import torch
from torch import nn


BEAT = 160  # samples in a beat, 250 Hz
LEARNED_BEATS = 6000
BATCH = 32
POOL = 2048  # persistent chains
CHAIN = 8  # Langevin moves per update
MOVE = 8.0  # step size of a move
JITTER = 0.01  # noise of a move
REBORN = 0.05  # share of chains that start afresh
UPDATES = 240
SHOW = 20


def synth_beats(count, gen):
    """P wave, QRS complex and T wave as Gaussian bumps with a beat-to-beat spread."""
    t = torch.linspace(0.0, 0.64, BEAT)
    #                place  width  height
    bumps = torch.tensor(
        [[0.10, 0.020, 0.15], [0.215, 0.008, -0.12], [0.24, 0.010, 1.00], [0.265, 0.009, -0.25], [0.44, 0.040, 0.30]]
    )
    place = bumps[:, 0] + 0.006 * torch.randn(count, 5, generator=gen)
    width = bumps[:, 1] * (1 + 0.10 * torch.randn(count, 5, generator=gen))
    height = bumps[:, 2] * (1 + 0.15 * torch.randn(count, 5, generator=gen))
    beats = (height[..., None] * torch.exp(-0.5 * ((t - place[..., None]) / width[..., None]) ** 2)).sum(1)
    wander = 0.05 * torch.randn(count, 1, generator=gen)
    return (beats + wander + 0.01 * torch.randn(count, BEAT, generator=gen)).unsqueeze(1)


def energy_network(width=96):
    def stage(inputs, outputs, kernel, stride):
        return [nn.Conv1d(inputs, outputs, kernel, stride=stride, padding=kernel // 2), nn.SiLU()]

    return nn.Sequential(
        *stage(1, width // 2, 9, 2),
        *stage(width // 2, width, 7, 2),
        *stage(width, width, 7, 1),
        *stage(width, 2 * width, 5, 2),
        *stage(2 * width, 2 * width, 5, 1),
        nn.Flatten(),
        nn.Linear(2 * width * BEAT // 8, 128),
        nn.SiLU(),
        nn.Linear(128, 1),
        nn.Flatten(0),
    )


def pick_starts(pool, gen):
    """Rows of the pool to go on with, some of them replaced by noise."""
    rows = torch.randperm(POOL, generator=gen)[:BATCH]
    starts = pool[rows]
    fresh = torch.rand(BATCH, 1, 1, generator=gen) < REBORN
    return rows, torch.where(fresh, 0.3 * torch.randn(starts.shape, generator=gen), starts)


def walk(energy, x, gen):
    """A short Langevin chain downhill in energy, from x."""
    for _ in range(CHAIN):
        x = x.detach().requires_grad_(True)
        total = energy(x).sum()
        total.backward()  # sick here
        slope = x.grad  # sick here
        (slope,) = torch.autograd.grad(total, x)  # well
        with torch.no_grad():
            x = x - MOVE * slope.clamp(-0.03, 0.03) + JITTER * torch.randn(x.shape, generator=gen)
            x = x.clamp(-1.5, 1.8)
    return x


def contrast(energy, real, dreamed, weight=0.1):
    """Contrastive divergence loss with the usual penalty on large energies."""
    both = energy(torch.cat([real, dreamed]))
    low, high = both.chunk(2)
    return low.mean() - high.mean() + weight * both.square().mean(), low, high


def batches(beats, gen):
    while True:
        order = torch.randperm(len(beats), generator=gen)
        for start in range(0, len(order) - BATCH + 1, BATCH):
            clean = beats[order[start : start + BATCH]]
            yield clean + 0.005 * torch.randn(clean.shape, generator=gen)


def separation(energy, beats, gen):
    """Share of normal beats with less energy than the same beats with their T wave turned over."""
    with torch.no_grad():
        turned = beats.clone()
        turned[:, :, 90:140] *= -1
        return (energy(beats) < energy(turned)).float().mean().item()


def learn():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(6)
    beats = synth_beats(LEARNED_BEATS + 128, gen)
    beats, held_out = beats[:-128], beats[-128:]
    pool = 0.3 * torch.randn(POOL, 1, BEAT, generator=gen)
    energy = energy_network()
    optimizer = torch.optim.Adam(energy.parameters(), lr=2e-4, betas=(0.0, 0.999), fused=True)
    stream = batches(beats, gen)
    began = time.time()
    for update in range(1, UPDATES + 1):
        rows, starts = pick_starts(pool, gen)
        dreamed = walk(energy, starts, gen)  # here
        pool[rows] = dreamed
        loss, low, high = contrast(energy, next(stream), dreamed)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(energy.parameters(), 0.5)
        optimizer.step()
        if update % SHOW == 0:
            gap = (high.mean() - low.mean()).item()
            print(
                f"update {update:4d}: loss {loss.item():+.4f}, gap {gap:+.4f}, "
                f"{(time.time() - began) / update * 1e3:.0f} ms each",
                flush=True,
            )
    print(f"turned T waves told apart: {separation(energy, held_out, gen):.2f}")


if __name__ == "__main__":
    learn()
