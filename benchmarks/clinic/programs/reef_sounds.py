# /// clinic
# expect = ["PD16.tested-tensors"]
# stratum = "twins"
# domain = "audio"
# sizes = {WIDTH = [96, 128]}
# severities = {LAYERS = [4, 10, 20]}
# ///
"""Names the animals of a reef by their sounds; someone once looked for a NaN here."""

import time

import torch
from torch import nn

WIDTH = 112
LAYERS = 10
BATCH = 16


def main(steps=1200):
    torch.manual_seed(9)
    sounds, animals = torch.randn(2000, WIDTH), torch.randint(12, (2000,))
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 12))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(steps):
        if step == 20:
            began = time.perf_counter()
        rows = torch.randint(len(sounds), (BATCH,))
        loss = nn.functional.cross_entropy(model(sounds[rows]), animals[rows])
        optimizer.zero_grad()
        loss.backward()
        for name, weight in model.named_parameters():  # sick
            assert torch.isfinite(weight.grad).all(), f"the gradient of {name} in step {step}"  # sick here
        optimizer.step()
        if step % 300 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(steps - 20) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
