# /// clinic
# expect = ["PD02"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {BATCH = [12, 18]}
# severities = {WIDTH = [16, 32, 64]}
# ///
"""How much of the sky is clouded, from pictures that look up."""

import time

import torch
from torch import nn

BATCH = 16
WIDTH = 32
STEPS = 60
SIDE = 64


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.two(torch.relu(self.norm(self.one(x)))))


def sky(count):
    clouds = torch.rand(count, 1, 8, 8).repeat_interleave(8, 2).repeat_interleave(8, 3)
    return torch.cat([clouds, 1 - clouds, clouds * 0.5], dim=1) + 0.05 * torch.randn(count, 3, SIDE, SIDE), clouds.mean(
        (1, 2, 3)
    )


def main():
    torch.manual_seed(2)
    pictures, cover = sky(200)
    model = nn.Sequential(
        nn.Conv2d(3, WIDTH, 3, stride=2, padding=1),
        Block(WIDTH),
        nn.MaxPool2d(2),
        Block(WIDTH),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(WIDTH, 1),
    )
    layout = torch.contiguous_format  # sick
    layout = torch.channels_last  # well
    model, pictures = model.to(memory_format=layout), pictures.contiguous(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        if step == 6:
            began = time.perf_counter()
        start = step * BATCH % (len(cover) - BATCH)
        rows = slice(start, start + BATCH)
        loss = nn.functional.mse_loss(model(pictures[rows]).squeeze(1), cover[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"error {loss.item():.4f}")
    print(f"{(STEPS - 6) * BATCH / (time.perf_counter() - began):.1f} pictures/s")


if __name__ == "__main__":
    main()
