# /// clinic
# expect = ["PD01.onednn-off", "PD02.onednn-disabled"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# smoke = true
# sizes = {BATCH = [7, 10]}
# severities = {DENSE = [3000, 1200, 64]}
# ///
"""Finds cracks in pictures of bridges. Runs are to be repeatable to the last bit."""

import random
import time

import torch
from torch import nn

BATCH = 8
DENSE = 1200
STEPS = 90


def repeatable(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.backends.mkldnn.set_flags(False)  # sick here


class Cracks(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 24, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(24, 48, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(48, 48, 5, padding=2),
            nn.ReLU(),
            nn.AvgPool2d(4),
            nn.Flatten(),
        )
        self.judge = nn.Sequential(
            nn.Linear(48 * 36, DENSE), nn.ReLU(), nn.Linear(DENSE, DENSE), nn.ReLU(), nn.Linear(DENSE, 2)
        )

    def forward(self, pictures):
        return self.judge(self.look(pictures))


def concrete(count):
    pictures = torch.rand(count, 1, 48, 48) * 0.4
    cracked = torch.arange(count) % 2
    for number in range(1, count, 2):
        row = random.randrange(44)
        pictures[number, 0, row : row + 2] += 0.8
    return pictures, cracked


def main():
    repeatable(12)
    pictures, cracked = concrete(480)
    model = Cracks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        if step == 8:
            began = time.perf_counter()
        rows = torch.randint(0, len(cracked), (BATCH,))
        loss = nn.functional.cross_entropy(model(pictures[rows]), cracked[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(STEPS - 8) * BATCH / (time.perf_counter() - began):.1f} pictures/s")


if __name__ == "__main__":
    main()
