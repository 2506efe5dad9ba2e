# /// clinic
# expect = ["PD02.channels-last"]
# stratum = "twins"
# domain = "glacier radar"
# ///
"""Pick bed, surface and internal layers in radargrams of an alpine glacier (synthetic profiles).

usage: train.py [--steps N] [--batch N] [--width N]
"""

import argparse
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES = ("air", "firn", "ice", "basal", "rock")


@dataclass
class Survey:
    profiles: int = 20
    height: int = 384
    traces: int = 576
    val_profiles: int = 4


def smooth_walk(n, length, scale, gen):
    """Random smooth curves: a sum of a few cosines along the profile."""
    t = torch.linspace(0, 1, length)
    out = torch.zeros(n, length)
    for k in range(1, 7):
        amp = torch.randn(n, 1, generator=gen) * scale / k
        phase = torch.rand(n, 1, generator=gen) * 2 * math.pi
        out += amp * torch.cos(2 * math.pi * k * t + phase)
    return out


def make_radargrams(survey, gen):
    n, h, w = survey.profiles, survey.height, survey.traces
    depth = torch.arange(h).float().view(1, h, 1)
    surface = (0.10 * h + smooth_walk(n, w, 4.0, gen)).unsqueeze(1)
    firn = surface + 0.12 * h + smooth_walk(n, w, 3.0, gen).unsqueeze(1)
    bed = (0.72 * h + smooth_walk(n, w, 18.0, gen)).unsqueeze(1)
    basal = bed - 0.07 * h - smooth_walk(n, w, 2.0, gen).abs().unsqueeze(1)
    label = (depth > surface).long() + (depth > firn) + (depth > basal) + (depth > bed)
    attenuation = torch.exp(-(depth - surface).clamp(min=0) / (0.45 * h))
    layers = torch.sin(0.55 * (depth - surface)) * (label == 2)
    speckle = torch.randn(n, h, w, generator=gen)
    power = torch.tensor([0.02, 0.9, 0.45, 0.7, 0.12])[label]
    image = attenuation * (power + 0.25 * layers) + 0.18 * speckle * power.sqrt()
    for edge, strength in ((surface, 1.5), (bed, 1.1)):
        image += strength * torch.exp(-(((depth - edge) / 1.8) ** 2))
    image = (image - image.mean((1, 2), keepdim=True)) / image.std((1, 2), keepdim=True)
    return image.unsqueeze(1), label


class Block(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class RadarUNet(nn.Module):
    def __init__(self, width=8, depth=4, classes=len(CLASSES)):
        super().__init__()
        sizes = [width * 2**i for i in range(depth)]
        self.down = nn.ModuleList()
        cin = 1
        for cout in sizes:
            self.down.append(Block(cin, cout))
            cin = cout
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(Block(big + small, small) for big, small in zip(sizes[:0:-1], sizes[-2::-1]))
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else self.pool(x))
            skips.append(x)
        skips.pop()
        for block in self.up:
            skip = skips.pop()
            x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
            x = block(torch.cat([skip, x], dim=1))
        return self.head(x)


def soft_dice(logits, label):
    prob = logits.softmax(1)
    hot = F.one_hot(label, logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = (prob * hot).sum((0, 2, 3))
    return 1 - (2 * inter / (prob.sum((0, 2, 3)) + hot.sum((0, 2, 3)) + 1)).mean()


def evaluate(model, images, labels, batch):
    model.eval()
    bed_error, right = [], 0
    with torch.no_grad():
        for i in range(0, len(images), batch):
            guess = model(images[i : i + batch]).argmax(1)
            truth = labels[i : i + batch]
            right += (guess == truth).sum().item()
            bed_error.append(((guess != 4).sum(1) - (truth != 4).sum(1)).abs().float().mean())
    model.train()
    return right / labels.numel(), torch.stack(bed_error).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=56)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--eval-every", type=int, default=28)
    parser.add_argument("--seed", type=int, default=79)
    args = parser.parse_args()

    gen = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    survey = Survey()
    images, labels = make_radargrams(survey, gen)
    val_x, val_y = images[: survey.val_profiles], labels[: survey.val_profiles]
    train_x, train_y = images[survey.val_profiles :], labels[survey.val_profiles :]

    model = RadarUNet(args.width)  # sick here
    model = RadarUNet(args.width).to(memory_format=torch.channels_last)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f} k parameters, {len(train_x)} training profiles")

    order = []
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        if len(order) < args.batch:
            order = torch.randperm(len(train_x), generator=gen).tolist()
        pick = [order.pop() for _ in range(args.batch)]
        x, y = train_x[pick], train_y[pick]
        if torch.rand((), generator=gen) < 0.5:
            x, y = x.flip(-1), y.flip(-1)
        logits = model(x)
        loss = F.cross_entropy(logits, y) + 0.5 * soft_dice(logits, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 8 == 0:
            print(f"step {step:3d}  loss {loss.item():.4f}  lr {schedule.get_last_lr()[0]:.2e}")
        if step % args.eval_every == 0:
            accuracy, error = evaluate(model, val_x, val_y, args.batch)
            print(f"  validation: pixel accuracy {accuracy:.3f}, bed error {error:.1f} bins")
    rate = args.steps * args.batch / (time.perf_counter() - start)
    torch.save(model.state_dict(), "glacier_beds.pt")
    print(f"{rate:.2f} radargrams/s")


if __name__ == "__main__":
    main()
