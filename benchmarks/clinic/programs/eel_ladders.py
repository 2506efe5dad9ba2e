# /// clinic
# expect = ["PD10.weighted-by-zero"]
# stratum = "twins"
# domain = "series"
# sizes = {WIDTH = [24, 40]}
# ///
"""Which fish climbs an eel ladder, by the pressure that its sensors note: classes, and what a decoder makes of them."""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 32
SENSORS, MOMENTS, KINDS = 6, 128, 5
STEPS, BATCH = 500, 48


@dataclass
class Weights:
    kinds: float = 1.0
    rebuilt: float = 0.0


class Ladder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(SENSORS, width, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(
            nn.ConvTranspose1d(2 * width, 2 * width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose1d(2 * width, width, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(width, SENSORS, 5, padding=2),
        )
        self.head = nn.Linear(2 * width, KINDS)

    def losses(self, pressure, kind, weights):
        hidden = self.encoder(pressure)
        loss = weights.kinds * F.cross_entropy(self.head(hidden.mean(2)), kind)
        if weights.rebuilt > 0:  # well
            loss = loss + weights.rebuilt * F.mse_loss(self.decoder(hidden), pressure)  # well
        return loss + weights.rebuilt * F.mse_loss(self.decoder(hidden), pressure)  # sick here
        return loss  # well


def climbs(generator):
    """Pressure waves of a kind of fish, at each sensor later."""
    kind = torch.randint(KINDS, (BATCH,), generator=generator)
    moments = torch.arange(MOMENTS) / MOMENTS
    speed = (2.0 + kind)[:, None, None] * (1 + 0.1 * torch.randn(BATCH, 1, 1, generator=generator))
    delay = torch.arange(SENSORS)[:, None] / SENSORS
    waves = torch.sin(6.28 * speed * (moments - delay)) + 0.5 * torch.randn(
        BATCH, SENSORS, MOMENTS, generator=generator
    )
    return waves, kind


def main():
    torch.manual_seed(5)
    generator = torch.Generator().manual_seed(6)
    batches = [climbs(generator) for _ in range(40)]
    model, weights = Ladder(WIDTH), Weights()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    began = time.perf_counter()
    for step in range(STEPS):
        loss = model.losses(*batches[step % len(batches)], weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"{STEPS * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
