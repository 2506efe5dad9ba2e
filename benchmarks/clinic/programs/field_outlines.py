# /// clinic
# expect = ["PD08.allocator-churn"]
# stratum = "twins"
# domain = "images"
# sizes = {SEED = [0, 99]}
# severities = {SIDE = [192, 304, 400]}
# cure = {MALLOC_MMAP_THRESHOLD_ = "4294967296", MALLOC_TRIM_THRESHOLD_ = "4294967296", MALLOC_TOP_PAD_ = "268435456"}
# ///
"""Outlines fields in aerial pictures."""

import time

import torch
from torch import nn
from torch.nn import functional

SIDE = 304
SEED = 0
BATCH = 8
STEPS = 42


class Outline(nn.Module):
    """Cheap layers at full resolution."""

    def __init__(self, width=12):
        super().__init__()
        self.entry = nn.Conv2d(3, width, 1)
        self.mixes = nn.ModuleList([nn.Conv2d(width, width, 1) for _ in range(1)])
        self.scales = nn.ParameterList([nn.Parameter(torch.full((1, width, 1, 1), 0.5)) for _ in range(1)])
        self.exit = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        x = self.entry(x)
        for mix, scale in zip(self.mixes, self.scales, strict=True):
            centred = x - x.mean(dim=(2, 3), keepdim=True)
            x = x + torch.relu(mix(centred)) * scale
        return self.exit(x)


def pictures(generator):
    corners = torch.rand(BATCH, 1, 1, 1, generator=generator)
    image = torch.rand(BATCH, 3, SIDE, SIDE, generator=generator) * 0.3
    image[:, :, : SIDE // 2, : SIDE // 3] += corners
    return image, (image.mean(1, keepdim=True) > 0.4).float()


def main():
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    known = [pictures(generator) for _ in range(6)]
    model = Outline()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if step == 5:
            began = time.perf_counter()
        images, fields = known[step % len(known)]
        loss = functional.binary_cross_entropy_with_logits(model(images), fields)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}: {loss.item():.4f}")
    print(f"{(STEPS - 5) * BATCH / (time.perf_counter() - began):.2f} pictures/s")


if __name__ == "__main__":
    main()
