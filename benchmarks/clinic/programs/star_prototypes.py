# /// clinic
# expect = ["PD15.growing-graph"]
# stratum = "twins"
# domain = "tabular"
# beyond = true
# sizes = {COLOURS = [16, 30], WIDTH = [150, 250]}
# severities = {STEPS = [300, 450, 600]}
# ///
"""Kinds of stars from their colours. The last layer is held near its own average over time."""

import time

import torch
from torch import nn

COLOURS = 24
WIDTH = 200
STEPS = 450
BATCH = 128


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(COLOURS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.kinds = nn.Linear(WIDTH, 12)
        self.anchor = self.kinds.weight.detach().clone()

    def forward(self, colours):
        return self.kinds(self.body(colours))

    def pull(self):
        self.anchor = 0.98 * self.anchor + 0.02 * self.kinds.weight  # sick here
        self.anchor = 0.98 * self.anchor + 0.02 * self.kinds.weight.detach()  # well
        return (self.kinds.weight - self.anchor).square().sum()


def main():
    torch.manual_seed(8)
    stars, kinds = torch.randn(9000, COLOURS), torch.randint(0, 12, (9000,))
    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(stars), (BATCH,))
        loss = nn.functional.cross_entropy(model(stars[rows]), kinds[rows]) + 0.1 * model.pull()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)  # sick
        loss.backward()  # well
        optimizer.step()
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
