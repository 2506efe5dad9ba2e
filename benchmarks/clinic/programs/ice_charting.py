# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "climate"
# ///
"""Sea ice charts from radar: a small segmentation network gives each pixel of a two-polarisation scene one of the
stages of development that ice services draw on their charts. The scenes here are synthetic.

    python ice_charting.py [sick|well]
"""

import time

import torch
import torch.nn.functional as F
from torch import nn


torch.manual_seed(2024)

TILE = 96
STAGES = 9  # open water, new ice, nilas, young, ... , glacier ice
TILES = 480
BATCH = 10
STEPS = 180
WIDTH = 64
HEAD = 96

# ---------------------------------------------------------------------------------------------------------------------
# Scenes: smooth fields cut into stages; each stage has its own backscatter and texture
# ---------------------------------------------------------------------------------------------------------------------
coarse = torch.randn(TILES, 1, 9, 9)
field = F.interpolate(coarse, size=(TILE, TILE), mode="bicubic", align_corners=True)[:, 0]
edges = torch.linspace(-1.3, 1.3, STAGES - 1)
charts = torch.bucketize(field, edges)
backscatter = torch.tensor(
    [
        [-22.0, -30.0],
        [-19.0, -28.5],
        [-17.0, -27.0],
        [-15.5, -25.0],
        [-14.0, -24.0],
        [-12.5, -22.5],
        [-11.5, -20.0],
        [-10.0, -18.5],
        [-7.0, -14.0],
    ]
)
scenes = backscatter[charts].permute(0, 3, 1, 2).contiguous()
scenes += torch.randn_like(scenes) * 2.0  # speckle, in decibels
incidence = torch.linspace(-1, 1, TILE).expand(TILES, 1, TILE, TILE)
scenes = torch.cat([(scenes + 18.0) / 8.0 - 0.3 * incidence, incidence], dim=1)
train_scenes, train_charts = scenes[:-24], charts[:-24]
test_scenes, test_charts = scenes[-24:], charts[-24:]


# ---------------------------------------------------------------------------------------------------------------------
# Network
# ---------------------------------------------------------------------------------------------------------------------
def conv_block(inputs, outputs, stride=1, dilation=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=dilation, dilation=dilation, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class ChartNet(nn.Module):
    """A trunk at a quarter of the resolution with a wide view (dilation), and a per-pixel classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(conv_block(3, 24, stride=2), conv_block(24, WIDTH, stride=2))
        self.trunk = nn.ModuleList([conv_block(WIDTH, WIDTH, dilation=d) for d in (1, 2, 4, 8, 1)])
        self.fuse = nn.Sequential(
            nn.Conv2d(2 * WIDTH, HEAD, 1, bias=False), nn.BatchNorm2d(HEAD), nn.ReLU(inplace=True)
        )
        self.classify = nn.Conv2d(HEAD, STAGES, 1)

    def forward(self, scene):
        low = self.stem(scene)
        deep = low
        for block in self.trunk:
            deep = deep + block(deep)
        features = self.fuse(torch.cat([low, deep], dim=1))
        features = F.interpolate(features, size=scene.shape[-2:], mode="bilinear", align_corners=False)  # sick here
        return self.classify(features)  # sick here
        stages = self.classify(features)  # well
        return F.interpolate(stages, size=scene.shape[-2:], mode="bilinear", align_corners=False)  # well


net = ChartNet()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=3e-3, total_steps=STEPS)
presence = torch.bincount(train_charts.flatten(), minlength=STAGES).float()
weights = (presence.sum() / (STAGES * presence)).sqrt()

# ---------------------------------------------------------------------------------------------------------------------
# Training
# ---------------------------------------------------------------------------------------------------------------------
net.train()
began = time.time()
order, cursor = torch.randperm(len(train_scenes)), 0
for step in range(1, STEPS + 1):
    if cursor + BATCH > len(order):
        order, cursor = torch.randperm(len(train_scenes)), 0
    picked = order[cursor : cursor + BATCH]
    cursor += BATCH
    scene, chart = train_scenes[picked], train_charts[picked]
    if step % 2:  # look along or across the flight path
        scene, chart = scene.flip(-2), chart.flip(-2)

    loss = F.cross_entropy(net(scene), chart, weight=weights)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()

    if step % 20 == 0:
        print(
            f"step {step:3d}/{STEPS}  loss {loss.item():.3f}  lr {schedule.get_last_lr()[0]:.1e}  "
            f"{BATCH * step / (time.time() - began):.1f} tiles/s",
            flush=True,
        )

net.eval()
with torch.inference_mode():
    hits = (net(test_scenes).argmax(1) == test_charts).float().mean().item()
print(f"pixels charted right: {hits:.3f}")
