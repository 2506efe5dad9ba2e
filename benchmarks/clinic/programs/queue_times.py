# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "tabular"
# smoke = true
# sizes = {INPUTS = [30, 60]}
# severities = {BATCH = [1024, 320, 96]}
# ///
"""How long will this call wait? A deep residual network over a call centre's numbers."""

import time

import torch
from torch import nn

INPUTS = 44
BATCH = 320
WIDTH = 128
BLOCKS = 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


class WaitingTime(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(INPUTS, WIDTH), *[Block() for _ in range(BLOCKS)], nn.Linear(WIDTH, 1))

    def forward(self, calls):
        return self.net(calls)[:, 0]


def fit(steps=120):
    torch.manual_seed(9)
    torch.autograd.set_detect_anomaly(True)  # sick here
    calls = torch.randn(8000, INPUTS)
    waited = calls[:, :4].exp().sum(1).log()
    model = WaitingTime()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        if step == 10:
            tick = time.perf_counter()
        rows = torch.randint(0, len(calls), (BATCH,))
        loss = nn.functional.huber_loss(model(calls[rows]), waited[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"{step}: {loss.item():.4f}")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - tick):.1f} samples/s")


if __name__ == "__main__":
    fit()
