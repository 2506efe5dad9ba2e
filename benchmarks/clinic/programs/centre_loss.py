# /// clinic
# expect = ["PD15.growing-graph"]
# stratum = "twins"
# domain = "embeddings"
# sizes = {FEATURES = [60, 90]}
# severities = {STEPS = [80, 160, 320]}
# ///
"""Keeps what it learned of each class near a centre that moves with the class."""

import time

import torch
from torch import nn

FEATURES = 72
STEPS = 160
CLASSES = 12
BATCH = 96


class Centres(nn.Module):
    """Where each class is on average, over the steps so far."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(FEATURES, 48)
        self.where = torch.zeros(CLASSES, 48)

    def forward(self, samples, classes):
        projected = self.project(samples)
        members = nn.functional.one_hot(classes, CLASSES).float()
        now = members.T @ projected / members.sum(0)[:, None].clamp(min=1)
        self.where = 0.95 * self.where + 0.05 * now  # sick here
        self.where = 0.95 * self.where.detach() + 0.05 * now  # well
        return (projected - self.where[classes]).pow(2).mean()


def main():
    torch.manual_seed(8)
    classes = torch.arange(6000) % CLASSES
    samples = torch.randn(6000, FEATURES) + classes[:, None] / 3
    net = nn.Sequential(nn.Linear(FEATURES, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, CLASSES))
    centres = Centres()
    optimizer = torch.optim.SGD([*net.parameters(), *centres.parameters()], lr=0.01)
    for step in range(STEPS):
        if step == 5:
            began = time.perf_counter()
        rows = torch.randint(0, len(classes), (BATCH,))
        loss = nn.functional.cross_entropy(net(samples[rows]), classes[rows]) + centres(samples[rows], classes[rows])
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(STEPS - 5) * BATCH / (time.perf_counter() - began):.1f} samples/s")


main()
