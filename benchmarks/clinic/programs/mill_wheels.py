# /// clinic
# stratum = "decoys"
# resembles = ["PD17"]
# domain = "series"
# sizes = {WIDTH = [160, 200]}
# ///
"""When does this mill's bearing fail? An update that is as it should be: one scheduler step for each, gradients let go,
clipped in one call, and the embedding's table frozen."""

import time

import torch
from torch import nn

WIDTH = 176
BATCH = 128


def main(steps=400):
    torch.manual_seed(11)
    readings, days = torch.randn(4096, WIDTH), torch.rand(4096, 1)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    model[0].weight.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(len(readings), (BATCH,))
        loss = nn.functional.mse_loss(model(readings[rows]), days[rows])
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        plan.step()
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
