# /// clinic
# expect = ["PD16.profiler-left-on"]
# stratum = "twins"
# domain = "tabular"
# sizes = {WIDTH = [48, 64]}
# severities = {BATCH = [256, 64, 16]}
# ///
"""How far will this moss have spread by autumn? A deep network over plots of forest floor."""

import contextlib
import time

import torch
from torch import nn

WIDTH = 56
BATCH = 64
LAYERS = 12


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, values):
        return values + torch.tanh(self.inner(self.norm(values)))


def train(steps=600):
    torch.manual_seed(4)
    plots = torch.randn(4096, WIDTH)
    spread = plots[:, :8].square().mean(1, keepdim=True)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    watching = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True)  # sick
    watching = contextlib.nullcontext()  # well
    with watching:  # here
        for step in range(steps):
            if step == 10:
                began = time.perf_counter()
            rows = torch.randint(len(plots), (BATCH,))
            loss = nn.functional.mse_loss(model(plots[rows]), spread[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 200 == 0:
                print(f"step {step}: {loss.item():.4f}")
        print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    train()
