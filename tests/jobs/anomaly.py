"""Trains under anomaly detection, switched on anew in each step, and ends in the error that it is there to find."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    with torch.autograd.detect_anomaly():
        loss = model(torch.ones(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{loss.item():.6f}")
torch.autograd.set_detect_anomaly(True)
try:
    torch.sqrt(model(torch.ones(4, 8)).sum() * 0 - 1).backward()
except RuntimeError as error:
    print(error)
