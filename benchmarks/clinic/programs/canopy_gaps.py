# /// clinic
# expect = ["PD14"]
# endless = true
# stratum = "twins"
# domain = "image segmentation"
# ///
"""Segments gaps in forest canopies on synthetic aerial tiles, a small U-Net under Accelerate."""

import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

TILE, BANDS = 48, 4


def canopy_tiles(n, seed):
    """Smooth random heights; a gap is where the canopy drops below a local threshold."""
    g = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, 1, TILE // 8, TILE // 8, generator=g)
    height = F.interpolate(coarse, size=(TILE, TILE), mode="bicubic", align_corners=False)
    mask = (height < -0.4).float()
    leaves = torch.randn(n, BANDS, TILE, TILE, generator=g)
    gain = torch.tensor([0.9, 0.6, 1.4, -0.5]).view(1, BANDS, 1, 1)
    return height * gain + 0.8 * leaves, mask


def double_conv(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.GroupNorm(4, c_out),
        nn.SiLU(),
        nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
        nn.GroupNorm(4, c_out),
        nn.SiLU(),
    )


class TileUNet(nn.Module):
    def __init__(self, widths=(16, 32, 64, 128, 320)):
        super().__init__()
        self.down = nn.ModuleList()
        c = BANDS
        for w in widths:
            self.down.append(double_conv(c, w))
            c = w
        self.up = nn.ModuleList()
        self.merge = nn.ModuleList()
        for w in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(c, w, 2, stride=2))
            self.merge.append(double_conv(2 * w, w))
            c = w
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], dim=1))
        return self.head(x)


class Plateau:
    """Decides whether a score counts as progress (lower is better)."""

    def __init__(self, min_delta):
        self.min_delta, self.best = min_delta, float("inf")

    def improved(self, score):
        bar = self.best + self.min_delta  # sick
        bar = self.best - self.min_delta  # well
        if score < bar:
            self.best = score
            return True
        return False


class Keeper:
    """Holds on to the weights of the best model so far, and to what is needed to go on from there."""

    def __init__(self, accelerator, folder, min_delta=0.02, warm=10):
        self.accelerator = accelerator
        self.target = os.path.join(folder, "best")
        self.plateau = Plateau(min_delta)
        self.warm, self.seen, self.smooth, self.kept = warm, 0, None, 0

    def offer(self, loss, step):
        self.seen += 1
        self.smooth = loss if self.smooth is None else 0.95 * self.smooth + 0.05 * loss
        if self.seen > self.warm and self.plateau.improved(self.smooth):
            self.accelerator.save_state(self.target, safe_serialization=True)  # here
            self.kept = step


def dice_bce(logits, mask):
    p = logits.sigmoid()
    inter = (p * mask).sum(dim=(1, 2, 3))
    dice = 1 - (2 * inter + 1) / (p.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3)) + 1)
    return dice.mean() + F.binary_cross_entropy_with_logits(logits, mask)


def main():
    torch.manual_seed(21)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(TensorDataset(*canopy_tiles(384, 21)), batch_size=4, shuffle=True, drop_last=True)
    model = TileUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    step, since = 0, time.time()
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(accelerator, folder)
        for epoch in range(300):
            for tiles, mask in loader:
                loss = dice_bce(model(tiles), mask)
                optimizer.zero_grad()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                step += 1
                keeper.offer(loss.item(), step)
                if step % 25 == 0:
                    rate = 25 / (time.time() - since)
                    print(
                        f"epoch {epoch} step {step} loss {keeper.smooth:.4f} best at {keeper.kept} {rate:.2f} steps/s",
                        flush=True,
                    )
                    since = time.time()


if __name__ == "__main__":
    main()
