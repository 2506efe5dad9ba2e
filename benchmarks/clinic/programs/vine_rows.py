# /// clinic
# stratum = "decoys"
# resembles = ["PD17"]
# domain = "tabular"
# sizes = {WIDTH = [192, 224]}
# ///
"""How much will each row of vines bear? Averages its weights all at once, and looks at its gradients now and then."""

import time

import torch
from torch import nn

WIDTH = 208
BATCH = 128


def main(steps=400):
    torch.manual_seed(15)
    rows, yields = torch.randn(4096, WIDTH), torch.rand(4096, 1)
    layers = [part for _ in range(4) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1))
    weights = list(model.parameters())
    averages = [weight.detach().clone() for weight in weights]
    optimizer = torch.optim.SGD(weights, lr=0.01)
    for step in range(steps):
        if step == 10:
            began = time.perf_counter()
        picked = torch.randint(len(rows), (BATCH,))
        loss = nn.functional.mse_loss(model(rows[picked]), yields[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(averages, weights, 0.001)
        if step % 100 == 0:
            norms = [weight.grad.norm().item() for weight in weights]
            print(f"step {step}: {loss.item():.4f}, largest gradient {max(norms):.4f}")
    print(f"{(steps - 10) / (time.perf_counter() - began):.1f} steps/s")


if __name__ == "__main__":
    main()
