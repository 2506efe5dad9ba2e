# /// clinic
# expect = ["PD17.parameter-loop"]
# allow = ["PD17.slow-update", "PD05"]
# stratum = "twins"
# smoke = true
# domain = "tabular"
# sizes = {SHADES = [5, 9]}
# severities = {BLOCKS = [8, 16, 28]}
# ///
"""Names the shade of an orchid from its spectrum, with an average of the weights for testing."""

import copy
import time

import torch
from torch import nn

SHADES = 7
BLOCKS = 16
BANDS = 48
BATCH = 96


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.turn = nn.LayerNorm(BANDS), nn.Linear(BANDS, BANDS)

    def forward(self, x):
        return x + nn.functional.gelu(self.turn(self.norm(x)))


def main(steps=500, warm=20, decay=0.995):
    torch.manual_seed(12)
    spectra = torch.rand(5000, BANDS)
    shade = (spectra[:, 0] * SHADES).long()
    model = nn.Sequential(*[Block() for _ in range(BLOCKS)], nn.Linear(BANDS, SHADES))
    averaged = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    kept, weights = list(averaged.parameters()), list(model.parameters())
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        rows = torch.randint(0, len(spectra), (BATCH,))
        loss = nn.functional.cross_entropy(model(spectra[rows]), shade[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mean, weight in zip(averaged.parameters(), model.parameters()):  # sick
                mean.mul_(decay).add_(weight, alpha=1 - decay)  # sick here
            torch._foreach_lerp_(kept, weights, 1 - decay)  # well
        if step % 100 == 0:
            print(f"{step}: {loss.item():.4f}")
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
