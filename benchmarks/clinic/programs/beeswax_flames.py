# /// clinic
# expect = ["PD02.narrow-groups"]
# stratum = "twins"
# domain = "beeswax candle flames"
# ///
# %% [markdown]
# # Flames of beeswax candles
# Four consecutive frames of a candle flame -> flame height, tilt, soot index and flicker phase.
# The frames are rendered here; the measured ones from the chapel come later.

# %%
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(2024)

FRAMES, SIDE = 4, 48
TRAIN, TEST = 1920, 240
BATCH = 16
EPOCHS = 2
LR = 3e-3

# network: a narrow ResNeXt
WIDTH = 64
DEPTH = 4
CARDINALITY = 32  # sick here
CARDINALITY = 8  # well
TARGETS = ["height", "tilt", "soot", "flicker sin", "flicker cos"]


# %% Rendering
def render(count):
    """Teardrop above the wick, bright mantle, dark zone; tilts with the draught and flickers at 8-12 Hz."""
    axis = torch.linspace(-1, 1, SIDE)
    y, x = axis.flip(0)[:, None], axis[None, :]
    height = torch.rand(count) * 0.7 + 0.6
    tilt = torch.randn(count) * 0.25
    soot = torch.rand(count)
    phase = torch.rand(count) * 2 * math.pi
    frames = []
    for k in range(FRAMES):
        pulse = 1 + 0.12 * torch.sin(phase + 0.9 * k)
        h = (height * pulse)[:, None, None]
        up = ((y + 0.8) / h).clamp(0, 1)
        centre = tilt[:, None, None] * up.square()
        breadth = 0.28 * (up * (1 - up)).clamp(min=1e-4).sqrt() * (1.3 - up)
        mantle = torch.exp(-(((x - centre) / (breadth + 0.02)) ** 2)) * (up > 0) * (up < 1)
        dark = soot[:, None, None] * torch.exp(-(((x - centre) / 0.06) ** 2) - ((up - 0.15) / 0.1) ** 2)
        frames.append(mantle - 0.6 * dark + 0.05 * torch.randn(count, SIDE, SIDE))
    images = torch.stack(frames, dim=1)
    targets = torch.stack([height, tilt, soot, phase.sin(), phase.cos()], dim=1)
    return images, targets


images, targets = render(TRAIN + TEST)
mean, std = targets[:TRAIN].mean(0), targets[:TRAIN].std(0)
targets = (targets - mean) / std
train_x, test_x = images[:TRAIN], images[TRAIN:]
train_y, test_y = targets[:TRAIN], targets[TRAIN:]
print("frames", tuple(train_x.shape), "targets", tuple(train_y.shape))


# %% Network
class Bottleneck(nn.Module):
    def __init__(self, width, groups):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, groups=groups, bias=False),  # here
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x):
        return F.relu(x + self.body(x))


class FlameNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(FRAMES, WIDTH, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(WIDTH),
            nn.ReLU(inplace=True),
        )
        self.blocks = nn.Sequential(*[Bottleneck(WIDTH, CARDINALITY) for _ in range(DEPTH)])
        self.pool = nn.AdaptiveAvgPool2d(4)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(WIDTH * 16, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, len(TARGETS))
        )

    def forward(self, x):
        return self.head(self.pool(self.blocks(self.stem(x))))


model = FlameNet()
print(model)


# %% Training
def test_error():
    model.eval()
    with torch.no_grad():
        out = torch.cat([model(part) for part in test_x.split(2 * BATCH)])
    model.train()
    return (out - test_y).abs().mean(0)


steps = EPOCHS * (TRAIN // BATCH)
optimizer = torch.optim.SGD(model.parameters(), lr=LR * 10, momentum=0.9, nesterov=True, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LR * 10, total_steps=steps)
history = []

began = time.perf_counter()
for epoch in range(EPOCHS):
    order = torch.randperm(TRAIN)
    for i, pick in enumerate(order.split(BATCH)):
        x, y = train_x[pick], train_y[pick]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
            y = y.clone()
            y[:, 1] = -y[:, 1] - 2 * mean[1] / std[1]
        loss = F.smooth_l1_loss(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        schedule.step()
        history.append(loss.detach())
        if i % 40 == 39:
            print(f"epoch {epoch} batch {i + 1:4d} loss {torch.stack(history[-40:]).mean():.4f}", flush=True)
    error = test_error()
    print("test error:", ", ".join(f"{name} {e:.3f}" for name, e in zip(TARGETS, error.tolist())))
seconds = time.perf_counter() - began

# %% Summary
torch.save({"model": model.state_dict(), "mean": mean, "std": std}, "flames.pt")
rate = steps * BATCH / seconds
print(f"{rate:.1f} samples/s")
