# /// clinic
# expect = ["PD10.whole-sort"]
# allow = ["PD08.allocator-churn", "PD07.bfloat16-unused", "PD05.batch-too-small", "PD02.channels-last"]
# stratum = "twins"
# domain = "detection"
# sizes = {FRAMES = [12, 16], CHANNELS = [3, 4]}
# ///
"""Kerb detection on range images: one score for each anchor, the loss of the hardest ones."""

import time

import torch
from torch import nn
from torch.nn import functional as F

FRAMES = 12
CHANNELS = 4
HEIGHT, LENGTH = 32, 256
KEPT = 500
STEPS = 500


def hardest(logits, labels):
    losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none").flatten(1)
    worst, _ = losses.sort(dim=1, descending=True)  # sick here
    worst = worst[:, :KEPT]  # sick
    worst = losses.topk(KEPT, dim=1).values  # well
    return worst.mean()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(2, CHANNELS, 3, padding=1), nn.ReLU(), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU()
        )
        self.anchors = nn.Conv2d(CHANNELS, 6, 1)

    def forward(self, scan):
        return self.anchors(self.body(scan))


def scans(g):
    scan = torch.randn(FRAMES, 2, HEIGHT, LENGTH, generator=g)
    labels = (scan[:, :1] + scan[:, 1:] > 2.2).float().expand(-1, 6, -1, -1)
    return scan, labels


def main():
    g = torch.Generator().manual_seed(8)
    torch.manual_seed(8)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    for step in range(STEPS):
        if step == 10:
            began = time.perf_counter()
        scan, labels = scans(g)
        loss = hardest(model(scan), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: {loss.item():.3f}")
    print(f"{FRAMES * (STEPS - 10) / (time.perf_counter() - began):.1f} scans/s")


if __name__ == "__main__":
    main()
