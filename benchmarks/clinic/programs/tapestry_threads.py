# /// clinic
# expect = ["PD09.idle-experts"]
# stratum = "twins"
# domain = "series"
# sizes = {WIDTH = [160, 224]}
# ///
"""A mixture of experts that tells woven patterns by their threads: each thread goes through one of eight."""

import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 192
THREADS, KINDS, EXPERTS = 24, 9, 8
STEPS = 260


class Expert(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Mixture(nn.Module):
    def __init__(self, width, experts=EXPERTS):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width) for _ in range(experts))

    def forward(self, x):
        weight, picked = self.router(x).softmax(-1).max(-1)
        rows, places = x.flatten(0, 1), picked.flatten()  # well
        mixed = torch.zeros_like(rows)  # well
        mixed = torch.zeros_like(x)  # sick
        for number, expert in enumerate(self.experts):
            mixed = mixed + (picked == number).unsqueeze(-1) * expert(x)  # sick here
            mine = (places == number).nonzero(as_tuple=True)[0]  # well
            mixed = mixed.index_add(0, mine, expert(rows.index_select(0, mine)))  # well
        return x + weight.unsqueeze(-1) * mixed.view_as(x)


class Weaver(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.threads = nn.Linear(16, width)
        self.first, self.second = Mixture(width), Mixture(width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, KINDS)

    def forward(self, x):
        return self.head(self.norm(self.second(self.first(self.threads(x)))).mean(1))


def main():
    torch.manual_seed(5)
    model = Weaver(WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    truth = torch.randn(16, KINDS)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        x = torch.randn(48, THREADS, 16)
        loss = F.cross_entropy(model(x), (x.mean(1) @ truth).argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"{48 * (STEPS - 20) / (time.perf_counter() - began):.1f} cloths/s")


if __name__ == "__main__":
    main()
