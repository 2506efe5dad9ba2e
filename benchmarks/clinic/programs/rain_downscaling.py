# /// clinic
# expect = ["PD17"]
# stratum = "twins"
# domain = "climate downscaling"
# sizes = {FEATURES = [44, 52], BATCH = [7, 9]}
# ///
"""Statistical downscaling of rain radar: x4 super-resolution with a pixel and a feature (perceptual) loss.

The feature extractor stands for the rain-type classifier of the operations team, whose weights come with the project.
"""

import random
import time

import torch
import torch.nn.functional as F
from torch import nn

FEATURES = 48
BATCH = 8
FINE = 64
COARSE = FINE // 4
SCENES = 600
STEPS = 210
WARMUP = 6


def make_scenes(n):
    """Smooth random rain cells on the fine grid, and their coarse means."""
    g = torch.Generator().manual_seed(2)
    noise = torch.randn(n, 1, COARSE, COARSE, generator=g)
    cells = F.interpolate(noise, size=FINE, mode="bicubic", align_corners=False)
    detail = F.avg_pool2d(torch.randn(n, 1, FINE, FINE, generator=g), 3, 1, 1)
    fine = torch.relu(cells + 0.4 * detail).log1p()
    return F.avg_pool2d(fine, 4), fine


class ResBlock(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.a = nn.Conv2d(ch, ch, 3, padding=1)
        self.b = nn.Conv2d(ch, ch, 3, padding=1)

    def forward(self, x):
        return x + self.b(F.relu(self.a(x)))


class Downscaler(nn.Module):
    def __init__(self, ch=32, blocks=4):
        super().__init__()
        self.lift = nn.Conv2d(1, ch, 3, padding=1)
        self.blocks = nn.Sequential(*[ResBlock(ch) for _ in range(blocks)])
        self.project = nn.Conv2d(ch, 16, 3, padding=1)
        self.shuffle = nn.PixelShuffle(4)

    def forward(self, coarse):
        up = F.interpolate(coarse, scale_factor=4, mode="bilinear", align_corners=False)
        return up + self.shuffle(self.project(self.blocks(self.lift(coarse))))


class RainTypeFeatures(nn.Module):
    def __init__(self, ch):
        super().__init__()
        self.stage1 = nn.Sequential(
            nn.Conv2d(1, ch, 3, padding=1), nn.ReLU(), nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU()
        )
        self.stage2 = nn.Sequential(
            nn.AvgPool2d(2),
            nn.Conv2d(ch, 2 * ch, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * ch, 2 * ch, 3, padding=1),
            nn.ReLU(),
        )
        self.stage3 = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(2 * ch, 4 * ch, 3, padding=1), nn.ReLU())

    def forward(self, x):
        first = self.stage1(x)
        second = self.stage2(first)
        return first, second, self.stage3(second)


def main():
    torch.manual_seed(29)
    random.seed(29)
    coarse, fine = make_scenes(SCENES)
    extractor = RainTypeFeatures(FEATURES).eval()  # sick here
    extractor = RainTypeFeatures(FEATURES).eval().requires_grad_(False)  # well
    net = Downscaler()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-4, fused=True)
    weights = (1.0, 0.5, 0.25)

    start = None
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        rows = torch.randint(0, SCENES, (BATCH,))
        low, high = coarse[rows], fine[rows]
        if random.random() < 0.5:  # weather has no preferred side
            low, high = low.flip(-1), high.flip(-1)

        estimate = net(low)
        with torch.no_grad():
            wanted = extractor(high)
        pixel = F.l1_loss(estimate, high)
        feature = sum(w * F.mse_loss(a, b) for w, a, b in zip(weights, extractor(estimate), wanted))
        loss = pixel + 0.1 * feature

        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step}: pixel {pixel.item():.4f} feature {feature.item():.5f}", flush=True)
    elapsed = time.perf_counter() - start
    print(f"{(STEPS - WARMUP) * BATCH / elapsed:.2f} scenes/s")


if __name__ == "__main__":
    main()
