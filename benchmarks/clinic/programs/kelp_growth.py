# /// clinic
# stratum = "decoys"
# resembles = ["PD17", "PD20"]
# allow = ["PD05"]
# domain = "tabular"
# ///
"""How fast does kelp grow? The norms of all gradients are printed every hundred steps."""

import time

import torch
from torch import nn

torch.manual_seed(21)
water = torch.randn(4000, 20)
growth = water[:, :2].prod(1, keepdim=True)
model = nn.Sequential(nn.Linear(20, 256), *[nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(6)])
head = nn.Linear(256, 1)
weights = [*model.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(weights, lr=1e-3, fused=True)
start = time.perf_counter()
for step in range(600):
    rows = torch.randint(0, len(water), (256,))
    loss = nn.functional.mse_loss(head(model(water[rows])), growth[rows])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(weights, 1.0)
    if step % 100 == 0:
        norms = [weight.grad.norm().item() for weight in weights]
        print(f"{step}: loss {loss.item():.4f}, largest gradient {max(norms):.4f}")
    optimizer.step()
print(f"{600 * 256 / (time.perf_counter() - start):.1f} samples/s")
