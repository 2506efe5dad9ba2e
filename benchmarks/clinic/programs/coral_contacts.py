# /// clinic
# expect = ["PD10.layer-by-edge"]
# stratum = "twins"
# domain = "coral colonies that touch"
# ///
"""Which colonies of a reef will bleach, by their own state and by whom they touch: a graph network."""

import time

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.message = nn.Linear(2 * d, d)
        self.update = nn.Linear(2 * d, d)

    def forward(self, h, src, dst):
        m = self.message(torch.cat([h[src], h[dst]], 1))  # sick here
        a, b = self.message.weight.chunk(2, 1)  # well
        m = (h @ a.T)[src] + (h @ b.T)[dst] + self.message.bias  # well
        total = torch.zeros_like(h).index_add_(0, dst, torch.relu(m))
        return torch.relu(self.update(torch.cat([h, total], 1)))


class Net(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.embed = nn.Linear(16, d)
        self.layers = nn.ModuleList(Layer(d) for _ in range(3))
        self.head = nn.Linear(d, 4)

    def forward(self, x, src, dst):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h, src, dst)
        return self.head(h)


torch.manual_seed(0)
n, e = 600, 9600
net = Net()
opt = torch.optim.AdamW(net.parameters(), 1e-3)
x, y = torch.randn(20, n, 16), torch.randint(0, 4, (20, n))
src, dst = torch.randint(0, n, (20, e)), torch.randint(0, n, (20, e))
began = time.perf_counter()
steps = 300
for step in range(steps):
    g = step % 20
    loss = nn.functional.cross_entropy(net(x[g], src[g], dst[g]), y[g])
    opt.zero_grad()
    loss.backward()
    opt.step()
print(f"{steps / (time.perf_counter() - began):.1f} steps/s")
