"""A fixed number of steps; each has a known number of extra calls: `python counted.py ITEMS CLONES CASTS`."""

import sys

import torch
from torch import nn

items, clones, casts = map(int, sys.argv[1:])
torch.manual_seed(0)
torch.set_num_threads(1)
net = nn.Linear(8, 8)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
inputs = torch.randn(4, 8)
for _ in range(30):
    optimizer.zero_grad()
    output = net(inputs)
    loss = output.sum()
    for _ in range(items):
        loss.item()
    for _ in range(clones):
        inputs.clone()
    for _ in range(casts):
        inputs.to(torch.float64)
    loss.backward()
    optimizer.step()
print(loss.item())
