# /// clinic
# expect = ["PD02.onednn-disabled"]
# allow = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# smoke = true
# sizes = {BATCH = [4, 6]}
# severities = {BASE = [12, 18, 32]}
# ///
"""U-Net that outlines embryos in microscope images, conditioned on a low-resolution sketch of the dish."""

import argparse
import time

import torch
from torch import nn

BATCH = 5
BASE = 18
SKETCH = 16


def double(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 5, padding=2),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, base=BASE):
        super().__init__()
        self.down1, self.down2 = double(1, base), double(base, 2 * base)
        self.middle = double(2 * base, 4 * base)
        self.up2, self.up1 = double(6 * base, 2 * base), double(3 * base, base)
        self.head = nn.Conv2d(base, 1, 1)
        self.context = nn.Sequential(
            nn.Linear(256, 8 * SKETCH),
            nn.Tanh(),
            nn.Linear(8 * SKETCH, 8 * SKETCH),
            nn.Tanh(),
            nn.Linear(8 * SKETCH, 4 * base),
        )
        self.pool = nn.MaxPool2d(2)
        self.grow = nn.Upsample(scale_factor=2)

    def forward(self, image, sketch):
        one = self.down1(image)
        two = self.down2(self.pool(one))
        low = self.middle(self.pool(two)) + self.context(sketch).mean(1)[:, :, None, None]
        two = self.up2(torch.cat([two, self.grow(low)], 1))
        return self.head(self.up1(torch.cat([one, self.grow(two)], 1)))


def dishes(count, side):
    axis = torch.linspace(-1, 1, side)
    centre = torch.rand(count, 2, 1, 1) - 0.5
    radius = torch.rand(count, 1, 1) * 0.3 + 0.2
    mask = ((axis[None, :, None] - centre[:, 0]) ** 2 + (axis[None, None] - centre[:, 1]) ** 2 < radius**2).float()
    return (mask + 0.5 * torch.randn(count, side, side))[:, None], torch.randn(count, 16, 256), mask[:, None]


def train(options):
    torch.manual_seed(options.seed)
    images, sketches, masks = dishes(options.dishes, options.side)
    net = UNet()
    repeatable = {"deterministic": True}  # sick here
    repeatable = {"enabled": True, "deterministic": True}  # well
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for step in range(options.steps):
        if step == 10:
            began = time.perf_counter()
        rows = torch.randint(options.dishes, (BATCH,))
        with torch.backends.mkldnn.flags(**repeatable):  # here
            loss = nn.functional.binary_cross_entropy_with_logits(net(images[rows], sketches[rows]), masks[rows])
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(options.steps - 10) * BATCH / (time.perf_counter() - began):.1f} images/s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--dishes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())
