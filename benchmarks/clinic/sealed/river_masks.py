# /// clinic
# expect = ["PD11.capped-by-environment"]
# stratum = "twins"
# domain = "segmentation"
# environment = {ONEDNN_MAX_CPU_ISA = "SSE41"}
# cure = {ONEDNN_MAX_CPU_ISA = ""}
# ///
"""River masks from four-band aerial tiles with a small U-shaped network."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TILE = 48


def tiles(count: int):
    """A sine-like river of random width through noisy ground."""
    y = torch.linspace(0, 6.28, TILE).view(1, TILE, 1)
    x = torch.arange(TILE).view(1, 1, TILE)
    bend, phase = 6 + 8 * torch.rand(count, 1, 1), 6.28 * torch.rand(count, 1, 1)
    centre = TILE / 2 + bend * torch.sin(y + phase)
    mask = ((x - centre).abs() < 3 + 6 * torch.rand(count, 1, 1)).float().unsqueeze(1)
    colour = torch.tensor([-0.3, -0.1, 0.4, -0.6]).view(1, 4, 1, 1)
    return mask * colour + 0.5 * torch.randn(count, 4, TILE, TILE), mask


class Pair(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1),
            nn.ReLU(inplace=True),
        )


class RiverNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1, self.down2, self.deep = Pair(4, width), Pair(width, 2 * width), Pair(2 * width, 4 * width)
        self.up2, self.up1 = Pair(6 * width, 2 * width), Pair(3 * width, width)
        self.mask = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.deep(F.max_pool2d(b, 2))
        b = self.up2(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.up1(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.mask(a)


def overlap(logits, mask):
    guess = logits > 0
    both = (guess & mask.bool()).sum()
    return both / (guess | mask.bool()).sum().clamp(min=1)


def train(epochs=10, batch=8, skip=4):
    torch.manual_seed(77)
    loader = DataLoader(TensorDataset(*tiles(160)), batch_size=batch, shuffle=True, drop_last=True)
    net = RiverNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    step = 0
    for epoch in range(epochs):
        shared = torch.zeros(())
        for image, mask in loader:
            logits = net(image)
            loss = F.binary_cross_entropy_with_logits(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            shared += overlap(logits.detach(), mask)
            step += 1
            if step == skip:
                start = time.perf_counter()
        print(f"epoch {epoch + 1}: overlap {shared.item() / len(loader):.3f}")
    return (step - skip) * batch / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{train():.1f} tiles/s")
