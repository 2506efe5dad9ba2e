# /// clinic
# stratum = "out-of-scope"
# domain = "audio"
# smoke = true
# sizes = {BANDS = [20, 40]}
# severities = {LAYERS = [20, 50, 120]}
# ///
"""Cleans a voice, frame by frame: a deep and narrow network."""

import time

import torch
from torch import nn

BANDS = 32
LAYERS = 50
BATCH = 64
SECONDS = 5.0


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(BANDS)
        self.mix = nn.Linear(BANDS, BANDS)

    def forward(self, x):
        return x + torch.tanh(self.mix(self.norm(x)))


def main():
    torch.manual_seed(6)
    model = nn.Sequential(*[Layer() for _ in range(LAYERS)], nn.Linear(BANDS, BANDS))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)  # sick
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)  # well
    clean = torch.rand(4096, BANDS)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 10:
            began = time.perf_counter()
        rows = torch.randint(0, len(clean), (BATCH,))
        wanted = clean[rows]
        loss = nn.functional.l1_loss(model(wanted + 0.1 * torch.randn(BATCH, BANDS)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps += 1
    print(f"loss {loss.item():.4f} after {steps} steps")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} frames/s")


if __name__ == "__main__":
    main()
