# /// clinic
# expect = ["PD10.enlarged-first"]
# stratum = "twins"
# domain = "lichen maps"
# ///
"""Cover maps of crustose lichens on gravestone quadrats: a small SegFormer (Xie et al. 2021) from scratch."""

import math
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SPECIES = ["bare rock", "Caloplaca", "Lecanora", "Rhizocarpon", "Verrucaria", "Xanthoria", "Aspicilia", "moss", "label"]


@dataclass
class Config:
    size: int = 128
    train_images: int = 240
    val_images: int = 24
    batch_size: int = 6
    epochs: int = 5
    dims: list[int] = field(default_factory=lambda: [32, 64, 96, 160])
    heads: list[int] = field(default_factory=lambda: [1, 2, 3, 5])
    reductions: list[int] = field(default_factory=lambda: [4, 2, 1, 1])
    depths: list[int] = field(default_factory=lambda: [1, 1, 1, 1])
    embed_dim: int = 96
    lr: float = 6e-4
    weight_decay: float = 0.01
    seed: int = 11


def draw_quadrats(count, size, rng):
    """Thalli are discs with a lobed rim that grow over each other; each species has a colour and a grain."""
    palette = rng.uniform(-1, 1, (len(SPECIES), 3)).astype(np.float32)
    grain = rng.uniform(0.05, 0.3, len(SPECIES)).astype(np.float32)
    ys, xs = np.mgrid[0:size, 0:size].astype(np.float32)
    maps = np.zeros((count, size, size), dtype=np.int64)
    for i in range(count):
        for _ in range(rng.integers(6, 12)):
            species = rng.integers(1, len(SPECIES))
            cy, cx = rng.uniform(0, size, 2)
            dy, dx = ys - np.float32(cy), xs - np.float32(cx)
            rim = rng.uniform(8, 26) * (1 + 0.15 * np.sin(rng.integers(3, 9) * np.arctan2(dy, dx)))
            maps[i][dy * dy + dx * dx < rim * rim] = species
    noise = rng.standard_normal((count, size, size, 3), dtype=np.float32)
    images = palette[maps] + grain[maps][..., None] * noise
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(maps)


class PatchEmbed(nn.Module):
    def __init__(self, cin, dim, kernel, stride):
        super().__init__()
        self.proj = nn.Conv2d(cin, dim, kernel, stride, kernel // 2)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = self.proj(x)
        h, w = x.shape[-2:]
        return self.norm(x.flatten(2).transpose(1, 2)), h, w


class ReducedAttention(nn.Module):
    def __init__(self, dim, heads, reduction):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.out = nn.Linear(dim, dim)
        self.reduce = nn.Conv2d(dim, dim, reduction, reduction) if reduction > 1 else None
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, h, w):
        b, n, d = x.shape
        q = self.q(x).view(b, n, self.heads, -1).transpose(1, 2)
        if self.reduce is not None:
            x = self.reduce(x.transpose(1, 2).reshape(b, d, h, w)).flatten(2).transpose(1, 2)
            x = self.norm(x)
        k, v = self.kv(x).view(b, x.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    def __init__(self, dim, heads, reduction):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = ReducedAttention(dim, heads, reduction)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)
        self.dw = nn.Conv2d(2 * dim, 2 * dim, 3, padding=1, groups=2 * dim)

    def forward(self, x, h, w):
        x = x + self.attn(self.norm1(x), h, w)
        y = self.fc1(self.norm2(x))
        y = self.dw(y.transpose(1, 2).unflatten(2, (h, w))).flatten(2).transpose(1, 2)
        return x + self.fc2(F.gelu(y))


class Stage(nn.Module):
    def __init__(self, cin, dim, heads, reduction, depth, kernel, stride):
        super().__init__()
        self.embed = PatchEmbed(cin, dim, kernel, stride)
        self.blocks = nn.ModuleList(Block(dim, heads, reduction) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x, h, w = self.embed(x)
        for block in self.blocks:
            x = block(x, h, w)
        return self.norm(x).transpose(1, 2).unflatten(2, (h, w))


class SegHead(nn.Module):
    def __init__(self, dims, embed_dim, classes):
        super().__init__()
        self.proj = nn.ModuleList(nn.Conv2d(d, embed_dim, 1) for d in dims)
        self.fuse = nn.Sequential(
            nn.Conv2d(len(dims) * embed_dim, embed_dim, 1, bias=False), nn.BatchNorm2d(embed_dim), nn.ReLU(inplace=True)
        )
        self.classifier = nn.Conv2d(embed_dim, classes, 1)

    def forward(self, features, size):
        grid = features[0].shape[-2:]
        pyramid = [F.interpolate(p(f), size=grid, mode="bilinear") for p, f in zip(self.proj, features)]
        x = self.fuse(torch.cat(pyramid, dim=1))
        x = F.interpolate(x, size=size, mode="bilinear")  # sick here
        return self.classifier(x)  # sick here
        return F.interpolate(self.classifier(x), size=size, mode="bilinear")  # well


class SegFormer(nn.Module):
    def __init__(self, cfg, classes):
        super().__init__()
        stages, cin = [], 3
        for i, dim in enumerate(cfg.dims):
            kernel, stride = (7, 4) if i == 0 else (3, 2)
            stages.append(Stage(cin, dim, cfg.heads[i], cfg.reductions[i], cfg.depths[i], kernel, stride))
            cin = dim
        self.stages = nn.ModuleList(stages)
        self.head = SegHead(cfg.dims, cfg.embed_dim, classes)

    def forward(self, image):
        x, features = image, []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return self.head(features, image.shape[-2:])


@torch.no_grad()
def mean_iou(model, loader, classes):
    model.eval()
    counts = torch.zeros(classes * classes, dtype=torch.long)
    for image, target in loader:
        predicted = model(image).argmax(1)
        counts += torch.bincount((target * classes + predicted).flatten(), minlength=classes * classes)
    counts = counts.view(classes, classes).double()
    hit = counts.diag()
    model.train()
    return (hit / (counts.sum(0) + counts.sum(1) - hit).clamp(min=1)).mean().item()


def main(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    images, maps = draw_quadrats(cfg.train_images + cfg.val_images, cfg.size, rng)
    train = TensorDataset(images[: cfg.train_images], maps[: cfg.train_images])
    val = TensorDataset(images[cfg.train_images :], maps[cfg.train_images :])
    loader = DataLoader(train, cfg.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, cfg.batch_size)

    model = SegFormer(cfg, len(SPECIES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    total = cfg.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / total)))
    seen, began = 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        running = torch.zeros(())
        for image, target in loader:
            loss = F.cross_entropy(model(image), target)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            running += loss.detach()
            seen += len(image)
        miou = mean_iou(model, val_loader, len(SPECIES))
        print(f"epoch {epoch + 1}: loss {running.item() / len(loader):.4f}  mIoU {miou:.3f}")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} images/s")


if __name__ == "__main__":
    main(Config())
