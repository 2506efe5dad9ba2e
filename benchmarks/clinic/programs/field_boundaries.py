# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "satellite segmentation of crop fields (accelerate)"
# ///
"""Segment crop fields in multispectral satellite tiles with a small U-Net (accelerate)."""

import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset


BANDS, TILE, CLASSES = 4, 64, 3


class Tiles(Dataset):
    """Tiles of rotated rectangular fields: background, field, boundary."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        rows, cols = np.mgrid[0:TILE, 0:TILE].astype(np.float32)
        self.images = np.empty((count, BANDS, TILE, TILE), dtype=np.float32)
        self.masks = np.zeros((count, TILE, TILE), dtype=np.int64)
        for image, mask in zip(self.images, self.masks):
            image[:] = rng.normal(0.2, 0.08, image.shape)
            for _ in range(4):
                angle, (y, x), (h, w) = rng.uniform(0, np.pi), rng.uniform(8, TILE - 8, 2), rng.uniform(6, 16, 2)
                u = (cols - x) * np.cos(angle) + (rows - y) * np.sin(angle)
                v = (rows - y) * np.cos(angle) - (cols - x) * np.sin(angle)
                depth = np.minimum(w - np.abs(u), h - np.abs(v))
                inside = depth > 0
                image[:, inside] += rng.uniform(0.05, 0.4, (BANDS, 1))
                mask[inside] = np.where(depth[inside] < 1.5, 2, 1)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1 = double_conv(BANDS, width)
        self.down2 = double_conv(width, 2 * width)
        self.bottom = double_conv(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.merge2 = double_conv(4 * width, 2 * width)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge1 = double_conv(2 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, images):
        fine = self.down1(images)
        middle = self.down2(F.max_pool2d(fine, 2))
        coarse = self.bottom(F.max_pool2d(middle, 2))
        middle = self.merge2(torch.cat([self.up2(coarse), middle], 1))
        fine = self.merge1(torch.cat([self.up1(middle), fine], 1))
        return self.head(fine)


def segmentation_loss(logits, masks):
    cross = F.cross_entropy(logits, masks)
    shares = logits.softmax(1)
    truth = F.one_hot(masks, CLASSES).permute(0, 3, 1, 2).float()
    overlap = (shares * truth).sum((0, 2, 3))
    dice = (2 * overlap + 1) / (shares.sum((0, 2, 3)) + truth.sum((0, 2, 3)) + 1)
    return cross + 1 - dice.mean()


@torch.no_grad()
def mean_iou(accelerator, model, loader):
    model.eval()
    confusion = torch.zeros(CLASSES, CLASSES, dtype=torch.long)
    for images, masks in loader:
        predicted, masks = accelerator.gather_for_metrics((model(images).argmax(1), masks))
        confusion += torch.bincount(CLASSES * masks.flatten() + predicted.flatten(), minlength=CLASSES * CLASSES).view(
            CLASSES, CLASSES
        )
    model.train()
    hits = confusion.diag()
    return (hits / (confusion.sum(0) + confusion.sum(1) - hits).clamp(min=1)).mean().item()


def train_epoch(accelerator, model, optimizer, scheduler, loader, epoch):
    running, start = 0.0, time.perf_counter()
    for step, (images, masks) in enumerate(loader, 1):
        logits = model(images)
        loss = segmentation_loss(logits, masks)
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        running += loss.detach()
        if step % 20 == 0:
            accelerator.print(
                f"epoch {epoch} step {step}: loss {running.item() / step:.4f}, "
                f"{(time.perf_counter() - start) / step * 1000:.0f} ms/step",
                flush=True,
            )
        images, masks, logits, loss = release_memory(images, masks, logits, loss)  # sick here
        del images, masks, logits, loss  # well


def main():
    set_seed(9)
    accelerator = Accelerator(cpu=True)
    train = DataLoader(Tiles(640, seed=1), batch_size=16, shuffle=True, drop_last=True)
    held_out = DataLoader(Tiles(64, seed=2), batch_size=16)
    model = UNet()
    epochs = 4
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs * len(train))
    model, optimizer, train, held_out, scheduler = accelerator.prepare(model, optimizer, train, held_out, scheduler)
    for epoch in range(epochs):
        train_epoch(accelerator, model, optimizer, scheduler, train, epoch)
        accelerator.print(f"epoch {epoch}: mean IoU {mean_iou(accelerator, model, held_out):.3f}", flush=True)


if __name__ == "__main__":
    main()
