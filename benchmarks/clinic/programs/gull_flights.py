# /// clinic
# stratum = "decoys"
# resembles = ["PD16"]
# domain = "series"
# sizes = {WIDTH = [64, 96]}
# ///
"""Where will the gull fly next? Profiled for a few steps at the start, and its loss tested now and then."""

import time

import torch
from torch import nn

WIDTH = 80
BATCH = 64


def main(steps=900):
    torch.manual_seed(2)
    paths = torch.randn(1000, 24, 3).cumsum(1)
    model = nn.GRU(3, WIDTH, batch_first=True)
    head = nn.Linear(WIDTH, 3)
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    plan = torch.profiler.schedule(wait=2, warmup=1, active=8, repeat=1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan) as profiler:
        for step in range(steps):
            if step == 40:
                began = time.perf_counter()
            rows = torch.randint(len(paths), (BATCH,))
            states, _ = model(paths[rows, :-1])
            loss = nn.functional.mse_loss(head(states), paths[rows, 1:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
            if step % 50 == 0:
                assert torch.isfinite(loss), f"step {step}"
                print(f"step {step}: {loss.item():.4f}")
    print(f"{(steps - 40) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
