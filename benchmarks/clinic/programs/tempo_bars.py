# /// clinic
# allow = ["PD05", "PD08.allocator-churn", "PD18.does-not-pay-off", "PD09"]
# stratum = "decoys"
# resembles = ["PD18"]
# domain = "audio"
# sizes = {TONES = [40, 80]}
# ///
"""The tempo of a piece, compiled: bars of four lengths, the length marked as one that varies, a loss outside."""

import random
import time

import torch
from torch import nn

TONES = 64
BATCH = 32
LENGTHS = (16, 24, 32, 48)


def run(steps=500, warm=60):
    torch.manual_seed(6)
    lengths = random.Random(6)
    model = nn.Sequential(nn.Embedding(TONES, 96), nn.Linear(96, 256), nn.GELU(), nn.Linear(256, 96), nn.GELU())
    head = nn.Linear(96, 1)
    hear = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.02)
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        bars = torch.randint(0, TONES, (BATCH, lengths.choice(LENGTHS)))
        torch._dynamo.mark_dynamic(bars, 1)
        tempo = head(hear(bars).amax(1))
        loss = nn.functional.mse_loss(tempo[:, 0], bars[:, 0] / TONES)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    print(f"{(steps - warm) * BATCH / (time.perf_counter() - start):.1f} bars/s")


if __name__ == "__main__":
    run()
