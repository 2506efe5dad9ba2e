# /// clinic
# expect = ["PD04.automatic-collections"]
# allow = ["PD03", "PD08.allocator-churn", "PD10.element-loop"]
# stratum = "twins"
# domain = "sketches"
# sizes = {WIDTH = [90, 100], CLASSES = [10, 30]}
# severities = {WINDOW = [60, 160, 320]}
# ///
"""Learns classes of sketches from a stream of JSON lines, each a list of points [x, y, pen]."""

import gc
import json
import random
import time

import torch
from torch import nn

WINDOW = 160
WIDTH = 96
CLASSES = 20
POINTS = 100
STEPS = 160


def lines():
    generator = random.Random(0)
    known = [
        json.dumps(
            {
                "word": number % CLASSES,
                "drawing": [[generator.randint(0, 255), generator.randint(0, 255), number % 2] for _ in range(POINTS)],
            }
        )
        for number in range(2000)
    ]
    while True:
        yield from known


def windows(stream):
    """Windows of parsed sketches, in which batches are mixed."""
    generator = random.Random(1)
    while True:
        window = [json.loads(next(stream)) for _ in range(WINDOW)]
        generator.shuffle(window)
        yield window


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.Sequential(nn.Conv1d(3, WIDTH, 5), nn.ReLU(), nn.Conv1d(WIDTH, 2 * WIDTH, 5, 2), nn.ReLU())
        self.out = nn.Linear(2 * WIDTH, CLASSES)

    def forward(self, points):
        return self.out(self.rnn(points.transpose(1, 2)).mean(2))


def main():
    torch.manual_seed(0)
    gc.set_threshold(500_000, 20, 20)  # well
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    stream = windows(lines())
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        window = next(stream)
        points = torch.tensor([sketch["drawing"] for sketch in window[:40]], dtype=torch.float32) / 255
        words = torch.tensor([sketch["word"] for sketch in window[:40]])
        loss = nn.functional.cross_entropy(net(points), words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.3f}")
    print(f"{(STEPS - 10) / (time.perf_counter() - began):.2f} steps/s")


main()
