# /// clinic
# stratum = "decoys"
# domain = "glaciology"
# sizes = {GRID = [44, 52], WIDTH = [28, 36]}
# ///
"""Learned emulator of ice thickness: one network step is one model year."""

import copy
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

GRID = 48
WIDTH = 32
BATCH = 8
EPOCHS = 9
STEPS = 80


class Emulator(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.GELU(),
            nn.Conv2d(width, 1, 3, padding=1),
        )

    def forward(self, h, bed, smb):
        return h + 0.1 * self.net(torch.cat([h, bed, smb], 1))


def smooth(n, gen):
    z = torch.randn(n, 1, GRID // 4, GRID // 4, generator=gen)
    return F.interpolate(z, size=(GRID, GRID), mode="bicubic", align_corners=False)


def year(h, bed, smb):
    s = F.pad(h + bed, (1, 1, 1, 1), mode="replicate")
    lap = s[..., 1:-1, 2:] + s[..., 1:-1, :-2] + s[..., 2:, 1:-1] + s[..., :-2, 1:-1] - 4 * s[..., 1:-1, 1:-1]
    return (h + 0.1 * lap + 0.05 * smb).clamp(min=0)


def snapshot(model, opt):
    return copy.deepcopy(model.state_dict()), copy.deepcopy(opt.state_dict())


def restore(model, opt, good):
    model.load_state_dict(good[0])
    opt.load_state_dict(copy.deepcopy(good[1]))


@torch.no_grad()
def drift(model, h, bed, smb, years=5):
    ref = h
    for _ in range(years):
        h, ref = model(h, bed, smb), year(ref, bed, smb)
    return F.l1_loss(h, ref).item()


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(7)
    n = BATCH * STEPS
    h0, bed, smb = smooth(n, gen).abs(), smooth(n, gen), smooth(n, gen)
    h1 = year(h0, bed, smb)
    test = smooth(8, gen).abs(), smooth(8, gen), smooth(8, gen)

    model = Emulator(WIDTH)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    good, rolled, done, t0 = snapshot(model, opt), 0, 0, None
    for epoch in range(EPOCHS):
        if epoch == 1:
            t0 = time.perf_counter()
        for ix in torch.randperm(n, generator=gen).split(BATCH):
            loss = F.mse_loss(model(h0[ix], bed[ix], smb[ix]), h1[ix])
            if not math.isfinite(loss.item()):
                restore(model, opt, good)
                rolled += 1
                continue
            good = snapshot(model, opt)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if t0 is not None:
                done += 1
        print(f"epoch {epoch} loss {loss.item():.5f} drift {drift(model, *test):.4f} rollbacks {rolled}", flush=True)
    print(f"speed {done / (time.perf_counter() - t0):.1f} steps/s")


if __name__ == "__main__":
    main()
