# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "basalt column joints"
# ///
# %% [markdown]
# Column joints in basalt: segmentation of cooling cracks on outcrop photographs
# (here: synthetic outcrops made from jittered hexagonal tessellations)

# %%
import math
import time

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import nn
from torch.nn import functional as F

torch.manual_seed(7)
rng = np.random.default_rng(7)

SIZE = 96
N_TRAIN, N_VALID = 240, 36
BATCH = 6
EPOCHS = 5
WIDTH = 16


# %%
def outcrop(size: int) -> tuple[np.ndarray, np.ndarray]:
    """One photograph (3, size, size) and its joint mask (size, size)."""
    spacing = rng.uniform(14, 22)
    rows = np.arange(-1, size / spacing + 2)
    cx, cy = np.meshgrid(rows * spacing, rows * spacing * math.sqrt(3) / 2)
    cx = cx + (np.arange(len(rows)) % 2)[:, None] * spacing / 2
    centres = np.stack([cx.ravel(), cy.ravel()], 1) + rng.normal(0, spacing * 0.14, (cx.size, 2))
    tilt = rng.uniform(0, math.pi)
    turn = np.array([[math.cos(tilt), -math.sin(tilt)], [math.sin(tilt), math.cos(tilt)]])
    centres = (centres - size / 2) @ turn + size / 2
    yy, xx = np.mgrid[:size, :size]
    near, order = cKDTree(centres).query(np.stack([xx, yy], -1), k=2)
    mask = (near[..., 1] - near[..., 0]) < rng.uniform(1.2, 2.4)
    tone = rng.uniform(0.35, 0.65, len(centres))[order[..., 0]]
    tone = np.where(mask, tone * rng.uniform(0.3, 0.7), tone)
    lichen = np.exp(-((xx - rng.uniform(0, size)) ** 2 + (yy - rng.uniform(0, size)) ** 2) / rng.uniform(60, 200))
    photo = np.stack([tone, tone + 0.15 * lichen, tone * 0.95 + 0.05 * lichen])
    return photo + rng.normal(0, 0.06, photo.shape), mask


def collect(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    photos, masks = zip(*(outcrop(SIZE) for _ in range(n)))
    x = torch.from_numpy(np.stack(photos)).float()
    y = torch.from_numpy(np.stack(masks)).float().unsqueeze(1)
    return (x - x.mean()) / x.std(), y


train_x, train_y = collect(N_TRAIN)
valid_x, valid_y = collect(N_VALID)
print(f"{N_TRAIN} outcrops, joints cover {train_y.mean():.1%}")


# %%
class Double(nn.Sequential):
    def __init__(self, c_in: int, c_out: int):
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(inplace=True),
        )


class JointNet(nn.Module):
    """U-Net with three scales; the coarse maps also feed an auxiliary head."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.enc0 = Double(3, width)
        self.enc1 = Double(width, width * 2)
        self.enc2 = Double(width * 2, width * 4)
        self.dec1 = Double(width * 6, width * 2)
        self.dec0 = Double(width * 3, width)
        self.head = nn.Conv2d(width, 1, 1)
        self.coarse = nn.Conv2d(width * 2, 1, 1)

    def forward(self, x):
        a = self.enc0(x)
        b = self.enc1(F.max_pool2d(a, 2))
        c = self.enc2(F.max_pool2d(b, 2))
        up = F.interpolate(c, scale_factor=2, mode="bilinear", align_corners=False)
        d = self.dec1(torch.cat([b, up], 1))
        up = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        e = self.dec0(torch.cat([a, up], 1))
        return self.head(e), self.coarse(d)


def joint_loss(logits, coarse, y):
    bce = F.binary_cross_entropy_with_logits(logits, y, pos_weight=torch.tensor(3.0))
    p = torch.sigmoid(logits)
    dice = 1 - (2 * (p * y).sum((1, 2, 3)) + 1) / (p.sum((1, 2, 3)) + y.sum((1, 2, 3)) + 1)
    small = F.avg_pool2d(y, 2)
    return bce + dice.mean() + 0.3 * F.binary_cross_entropy_with_logits(coarse, small)


@torch.no_grad()
def iou(model, x, y) -> float:
    model.eval()
    inter = union = 0.0
    for i in range(0, len(x), BATCH):
        hit = model(x[i : i + BATCH])[0] > 0
        truth = y[i : i + BATCH] > 0.5
        inter += (hit & truth).sum().item()
        union += (hit | truth).sum().item()
    model.train()
    return inter / max(union, 1)


# %%
model = JointNet(WIDTH)  # sick here
model = JointNet(WIDTH).to(memory_format=torch.channels_last)  # well
train_x = train_x.contiguous(memory_format=torch.channels_last)  # well
valid_x = valid_x.contiguous(memory_format=torch.channels_last)  # well
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
steps = EPOCHS * (N_TRAIN // BATCH)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=steps)

# %%
seen, best = 0, 0.0
began = time.perf_counter()
for epoch in range(EPOCHS):
    running = 0.0
    order = torch.randperm(N_TRAIN)
    for i in range(0, N_TRAIN, BATCH):
        pick = order[i : i + BATCH]
        x, y = train_x[pick], train_y[pick]
        if torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        logits, coarse = model(x)
        loss = joint_loss(logits, coarse, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        running += loss.item() * len(pick)
        seen += len(pick)
    score = iou(model, valid_x, valid_y)
    best = max(best, score)
    print(f"epoch {epoch}: loss {running / N_TRAIN:.3f}, IoU {score:.3f}")
took = time.perf_counter() - began

# %%
print(f"best IoU {best:.3f}")
print(f"{seen / took:.1f} samples/s")
