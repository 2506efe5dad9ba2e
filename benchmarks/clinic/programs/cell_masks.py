# /// clinic
# expect = ["PD08.unused-gradients", "PD08.grad-in-evaluation"]
# stratum = "twins"
# domain = "segmentation"
# ///
"""Segment cells: a decoder is trained on top of a fixed feature extractor."""

import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(42)
SIDE = 80


def draw_cells(count):
    """Round bright blobs on a noisy plate, with their masks."""
    yy, xx = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    masks = torch.zeros(count, 1, SIDE, SIDE)
    for _ in range(5):
        cy, cx = torch.rand(2, count, 1, 1) * SIDE
        radius = 4 + torch.rand(count, 1, 1) * 9
        masks[:, 0] = torch.maximum(masks[:, 0], (((yy - cy) ** 2 + (xx - cx) ** 2) < radius**2).float())
    plates = masks * 0.6 + 0.25 * torch.randn(count, 1, SIDE, SIDE)
    return plates, masks


def conv(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class Extractor(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(conv(1, 24), conv(24, 32))
        self.second = nn.Sequential(conv(32, 48, 2), conv(48, 48))
        self.third = nn.Sequential(conv(48, 64, 2), conv(64, 64))

    def forward(self, x):
        a = self.first(x)
        b = self.second(a)
        return a, b, self.third(b)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.mid, self.high = nn.Conv2d(64, 24, 1), nn.Conv2d(48, 24, 1), nn.Conv2d(32, 12, 1)
        self.merge = conv(24, 12)
        self.out = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, maps):
        a, b, c = maps
        x = self.mid(b) + F.interpolate(self.low(c), scale_factor=2)
        x = F.interpolate(self.merge(x), scale_factor=2) + self.high(a)
        return self.out(x.relu())


class CellTrainer:
    def __init__(self, batch=8):
        self.extractor = Extractor().eval()
        for weight in self.extractor.parameters():  # well
            weight.requires_grad_(False)  # well
        self.decoder = Decoder()
        self.optimizer = torch.optim.AdamW(self.decoder.parameters(), lr=2e-3)
        self.plates, self.masks = draw_cells(160)
        self.batch = batch

    def step(self, pick):
        maps = self.extractor(self.plates[pick])  # here
        logits = self.decoder(maps)
        mask = self.masks[pick]
        overlap = (logits.sigmoid() * mask).sum()
        dice = 1 - 2 * overlap / (logits.sigmoid().sum() + mask.sum() + 1)
        loss = F.binary_cross_entropy_with_logits(logits, mask) + dice
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def fit(self, epochs):
        done, begun = 0, None
        for epoch in range(epochs):
            total = torch.zeros(())
            for pick in torch.randperm(len(self.plates)).split(self.batch):
                total += self.step(pick)
                done += 1
                if done == 5:
                    begun, base = time.perf_counter(), done
            print(f"epoch {epoch} loss {total.item() * self.batch / len(self.plates):.3f}")
        return (done - base) * self.batch / (time.perf_counter() - begun)


if __name__ == "__main__":
    print(f"{CellTrainer().fit(epochs=5):.1f} plates/s")
