# /// clinic
# expect = ["PD17.passes-one-by-one"]
# stratum = "twins"
# domain = "segmentation"
# ///
"""Nuclei segmentation in synthetic fluorescence images: a small U-Net with deep supervision on three decoder levels."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


SIZE = 64
CLASSES = 3  # background, nucleus, border
IMAGES = 240
BATCH = 8
STEPS = 260
LEVEL_WEIGHTS = (1.0, 0.5, 0.25)


def draw_image(rng):
    """elliptic nuclei with a border class, uneven illumination and shot noise"""
    yy, xx = np.mgrid[0:SIZE, 0:SIZE].astype(np.float32)
    image = 0.1 + 0.05 * rng.random() * xx / SIZE
    label = np.zeros((SIZE, SIZE), dtype=np.int64)
    for _ in range(rng.integers(4, 9)):
        cy, cx = rng.uniform(6, SIZE - 6, 2)
        a, b = rng.uniform(4, 9, 2)
        angle = rng.uniform(0, np.pi)
        dx = (xx - cx) * np.cos(angle) + (yy - cy) * np.sin(angle)
        dy = (yy - cy) * np.cos(angle) - (xx - cx) * np.sin(angle)
        radius = (dx / a) ** 2 + (dy / b) ** 2
        image = image + rng.uniform(0.3, 0.8) * np.exp(-(radius**2))
        label[(radius < 1.35) & (label != 1)] = 2
        label[radius < 0.85] = 1
    image = rng.poisson(np.clip(image, 0, None) * 40) / 40.0
    return image.astype(np.float32), label


def make_dataset(rng):
    images, labels = zip(*(draw_image(rng) for _ in range(IMAGES)))
    images = torch.from_numpy(np.stack(images))[:, None]
    return (images - images.mean()) / images.std(), torch.from_numpy(np.stack(labels))


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class DeepUNet(nn.Module):
    """returns logits at full, half and quarter resolution"""

    def __init__(self, width=12):
        super().__init__()
        widths = [width, 2 * width, 4 * width, 8 * width]
        self.encoder = nn.ModuleList(block(i, o) for i, o in zip([1] + widths[:-1], widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(widths[i + 1], widths[i], 2, stride=2) for i in (2, 1, 0))
        self.decoder = nn.ModuleList(block(2 * widths[i], widths[i]) for i in (2, 1, 0))
        self.heads = nn.ModuleList(nn.Conv2d(widths[i], CLASSES, 1) for i in (2, 1, 0))

    def forward(self, x):
        skips = []
        for level, encode in enumerate(self.encoder):
            x = encode(x if level == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        outputs = []
        for up, decode, head, skip in zip(self.up, self.decoder, self.heads, reversed(skips[:-1])):
            x = decode(torch.cat([up(x), skip], dim=1))
            outputs.append(head(x))
        return outputs[::-1]


def dice_ce(logits, target):
    cross_entropy = F.cross_entropy(logits, target)
    probability = logits.softmax(dim=1)
    onehot = F.one_hot(target, CLASSES).permute(0, 3, 1, 2).to(probability.dtype)
    overlap = (probability * onehot).sum(dim=(0, 2, 3))
    size = probability.sum(dim=(0, 2, 3)) + onehot.sum(dim=(0, 2, 3))
    return cross_entropy + 1.0 - ((2 * overlap + 1) / (size + 1)).mean()


def augment(images, labels):
    if torch.rand(()) < 0.5:
        images, labels = images.flip(-1), labels.flip(-1)
    if torch.rand(()) < 0.5:
        images, labels = images.flip(-2), labels.flip(-2)
    turns = int(torch.randint(0, 4, ()))
    return images.rot90(turns, (-2, -1)), labels.rot90(turns, (-2, -1))


def train_step(model, optimizer, images, labels):
    optimizer.zero_grad(set_to_none=True)
    outputs = model(images)
    total = 0.0
    for level, (weight, logits) in enumerate(zip(LEVEL_WEIGHTS, outputs)):
        stride = 2**level
        loss = weight * dice_ce(logits, labels[:, ::stride, ::stride])
        loss.backward(retain_graph=True)  # sick here
        total = total + loss.detach()  # sick here
        total = total + loss  # well
    total.backward()  # well
    optimizer.step()
    return total.detach()


@torch.no_grad()
def foreground_iou(model, images, labels):
    model.eval()
    inside, union = 0, 0
    for part, truth in zip(images.split(16), labels.split(16)):
        predicted = model(part)[0].argmax(dim=1) == 1
        inside += int((predicted & (truth == 1)).sum())
        union += int((predicted | (truth == 1)).sum())
    model.train()
    return inside / max(union, 1)


def main():
    torch.manual_seed(5)
    images, labels = make_dataset(np.random.default_rng(5))
    held_images, held_labels = images[-40:], labels[-40:]
    images, labels = images[:-40], labels[:-40]

    model = DeepUNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    recent, start = [], time.perf_counter()
    for step in range(1, STEPS + 1):
        rows = torch.randint(0, len(images), (BATCH,))
        recent.append(train_step(model, optimizer, *augment(images[rows], labels[rows])))
        schedule.step()
        if step % 26 == 0:
            speed = 1000 * (time.perf_counter() - start) / step
            print(f"step {step:4d}  loss {torch.stack(recent).mean():.4f}  {speed:.1f} ms/step", flush=True)
            recent.clear()
    print(f"nucleus IoU on held-out images {foreground_iou(model, held_images, held_labels):.3f}")


if __name__ == "__main__":
    main()
