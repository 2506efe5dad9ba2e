# /// clinic
# expect = ["PD10.grown-by-cat"]
# allow = ["PD10.sequential-loop", "PD10.element-loop", "PD05.batch-too-small", "PD08.allocator-churn", "PD07.bfloat16-unused", "PD18.not-compiled"]
# stratum = "twins"
# domain = "wind energy"
# sizes = {TURBINES = [6, 9], HOURS = [72, 96]}
# ///
"""Hours of gusts at all turbines of a park, one after another by a cell, scored together."""

import time

import torch
from torch import nn

TURBINES = 8
HOURS = 84
WIDTH = 96
BATCH = 16
STEPS = 110


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, WIDTH)
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, weather):
        h = weather.new_zeros(weather.shape[0], WIDTH)
        states = h.new_zeros(weather.shape[0], 0, WIDTH)  # sick
        states = []  # well
        for hour in weather.unbind(1):
            h = self.cell(hour, h)
            states = torch.cat([states, h.unsqueeze(1)], dim=1)  # sick here
            states.append(h)  # well
        states = torch.stack(states, dim=1)  # well
        return self.out(states).squeeze(-1)


def weather(g):
    return torch.randn(BATCH * TURBINES, HOURS, 8, generator=g).cumsum(1) / 6


def main():
    torch.manual_seed(6)
    g = torch.Generator().manual_seed(6)
    model = Forecast()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    for step in range(STEPS):
        if step == 5:
            began = time.perf_counter()
        x = weather(g)
        gusts = x[..., 0].abs() + 0.3 * x[..., 1]
        loss = nn.functional.mse_loss(model(x), gusts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"{step} {loss.item():.4f}")
    print(f"{BATCH * (STEPS - 5) / (time.perf_counter() - began):.2f} parks/s")


if __name__ == "__main__":
    main()
