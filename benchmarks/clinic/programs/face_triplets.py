# /// clinic
# expect = ["PD10.element-loop", "PD10.scalar-reads"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "embeddings"
# sizes = {PEOPLE = [10, 16]}
# severities = {WIDTH = [1400, 500, 120]}
# ///
"""Learns face embeddings with triplets: for each face the nearest face of somebody else is pushed away."""

import time

import torch
from torch import nn

PEOPLE = 12
WIDTH = 500
EACH = 4
MARGIN = 0.2
SECONDS = 5.0


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(400, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.out = nn.Linear(WIDTH, 64)

    def forward(self, faces):
        return nn.functional.normalize(self.out(self.net(faces)), dim=1)


def triplet_loss(embedded, who):
    apart = torch.cdist(embedded, embedded)
    same = who[:, None] == who[None]
    losses = []  # sick
    for anchor in range(len(who)):  # sick here
        farthest = apart[anchor][same[anchor]].max()  # sick here
        nearest = apart[anchor][~same[anchor]].min()  # sick here
        losses.append(torch.relu(farthest - nearest + MARGIN))  # sick here
    return torch.stack(losses).mean()  # sick
    farthest = apart.masked_fill(~same, 0.0).amax(1)  # well
    nearest = apart.masked_fill(same, 4.0).amin(1)  # well
    return torch.relu(farthest - nearest + MARGIN).mean()  # well


def faces(generator):
    who = torch.arange(PEOPLE).repeat_interleave(EACH)
    typical = torch.randn(PEOPLE, 400, generator=generator)
    return typical[who] + 0.5 * torch.randn(len(who), 400, generator=generator), who


if __name__ == "__main__":
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    model = Embedder()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen, steps, began = 0, 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        pictures, who = faces(generator)
        loss = triplet_loss(model(pictures), who)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps, seen = steps + 1, seen + len(who)
        if steps == 15:
            seen, began = 0, time.perf_counter()
        if steps % 100 == 0:
            print(f"step {steps}: {loss.item():.4f}")
    print(f"{seen / (time.perf_counter() - began):.1f} faces/s")
