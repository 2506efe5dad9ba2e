# /// clinic
# expect = ["PD10.written-by-parts"]
# stratum = "twins"
# domain = "sonar"
# sizes = {HIDDEN = [92, 100], BATCH = [30, 34]}
# severities = {PINGS = [60, 90, 120]}
# ///
"""Trains a recurrent tracker that follows a target through the pings of a sonar."""

import time

import torch
from torch import nn

PINGS = 90
HIDDEN = 96
BATCH = 32
BEAMS = 24
STEPS = 220
WARMUP = 5


class Tracker(nn.Module):
    """Reads a ping, updates what it believes, and says where the target is."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(BEAMS, HIDDEN)
        self.head = nn.Sequential(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 2))

    def forward(self, pings):
        belief = pings.new_zeros(len(pings), HIDDEN)
        beliefs = pings.new_zeros(len(pings), PINGS, HIDDEN)  # sick
        beliefs = []  # well
        for ping in range(PINGS):
            belief = self.cell(pings[:, ping], belief)
            beliefs[:, ping] = belief  # sick here
            beliefs.append(belief)  # well
        beliefs = torch.stack(beliefs, dim=1)  # well
        return self.head(beliefs)


def tracks(count=2000):
    """Targets that drift, and how loud each beam hears them."""
    torch.manual_seed(5)
    where = torch.randn(count, PINGS, 2).mul(0.1).cumsum(1) + torch.randn(count, 1, 2)
    angle = torch.atan2(where[..., 1], where[..., 0])
    beams = torch.linspace(-3.14, 3.14, BEAMS)
    loudness = torch.cos(angle.unsqueeze(-1) - beams).clamp_min(0).pow(8)
    return loudness + 0.1 * torch.randn_like(loudness), where


def main():
    pings, where = tracks()
    model = Tracker()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        picked = torch.randint(0, len(pings), (BATCH,))
        loss = nn.functional.smooth_l1_loss(model(pings[picked]), where[picked])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
