# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "quilt block patterns"
# ///
"""Learn an embedding in which photographs of quilt blocks of the same pattern lie close together.

The catalogue has a number of patterns (Ohio Star, Log Cabin, Flying Geese, ...), each seen in many fabrics. The
embedding is trained with batch-hard triplets and judged by the recall of the nearest neighbour.
"""

import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    patterns: int = 72
    fabrics: int = 40
    held_out: int = 8
    size: int = 32
    patterns_per_batch: int = 16
    blocks_per_pattern: int = 6
    embedding: int = 64
    width: int = 24
    margin: float = 0.25
    steps: int = 1000
    eval_every: int = 125
    lr: float = 1.5e-3
    weight_decay: float = 1e-4
    seed: int = 1871


def half_square(cell, corner):
    """A patch cut along its diagonal; `corner` says which of the four halves is the dark one."""
    rows = torch.arange(cell).view(-1, 1)
    columns = torch.arange(cell).view(1, -1)
    upper = (columns >= rows).float()
    return torch.rot90(upper, corner)


def draw_pattern(cfg, generator):
    """A block of 4 x 4 patches with the symmetry of a rotation; values 0, 1 or 2 name the fabric."""
    cell = cfg.size // 4
    quarter = torch.zeros(2 * cell, 2 * cell)
    for row in range(2):
        for column in range(2):
            kind = int(torch.randint(0, 7, (), generator=generator))
            patch = half_square(cell, kind) if kind < 4 else torch.full((cell, cell), float(kind - 4))
            quarter[row * cell : (row + 1) * cell, column * cell : (column + 1) * cell] = patch
    top = torch.cat([quarter, torch.rot90(quarter, -1)], dim=1)
    return torch.cat([top, torch.rot90(top, 2)], dim=0).long()


def photograph(pattern, count, generator):
    """The pattern sewn in `count` sets of fabrics and photographed: colours, prints, light, and a small shift."""
    height, width = pattern.shape
    colours = torch.rand(count, 3, 3, generator=generator)
    images = colours[:, pattern].permute(0, 3, 1, 2)
    prints = torch.randn(count, 3, height, width, generator=generator) * 0.08
    light = 0.7 + 0.6 * torch.rand(count, 1, 1, 1, generator=generator)
    images = ((images + prints) * light).clamp(0, 1)
    shift = torch.randint(-2, 3, (2,), generator=generator)
    return torch.roll(images, shifts=(int(shift[0]), int(shift[1])), dims=(2, 3))


def catalogue(cfg):
    generator = torch.Generator().manual_seed(cfg.seed)
    drawn = [draw_pattern(cfg, generator) for _ in range(cfg.patterns)]
    photos = torch.stack([photograph(p, cfg.fabrics, generator) for p in drawn])
    return photos[:, cfg.held_out :], photos[:, : cfg.held_out]


class BlockEncoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        w = cfg.width
        layers = []
        for inside, outside in ((3, w), (w, 2 * w), (2 * w, 4 * w)):
            layers += [
                nn.Conv2d(inside, outside, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(inplace=True),
            ]
        self.features = nn.Sequential(*layers)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4 * w * 16, 128), nn.ReLU(), nn.Linear(128, cfg.embedding))

    def forward(self, images):
        return F.normalize(self.head(self.features(images)), dim=1)


def batch_hard_triplet(embedding, labels, margin):
    """For each block: the farthest one of its pattern against the nearest one of any other pattern."""
    distance = torch.cdist(embedding, embedding)
    losses = []  # sick
    for anchor in range(len(labels)):  # sick here
        same = labels == labels[anchor]  # sick
        farthest = distance[anchor][same].max()  # sick
        nearest = distance[anchor][~same].min()  # sick
        losses.append(F.relu(farthest - nearest + margin))  # sick
    return torch.stack(losses).mean()  # sick
    same = labels.unsqueeze(0) == labels.unsqueeze(1)  # well
    farthest = distance.masked_fill(~same, 0.0).amax(dim=1)  # well
    nearest = distance.masked_fill(same, float("inf")).amin(dim=1)  # well
    return F.relu(farthest - nearest + margin).mean()  # well


class PatternSampler:
    """P patterns with K blocks each."""

    def __init__(self, photos, cfg):
        self.photos = photos
        self.p = cfg.patterns_per_batch
        self.k = cfg.blocks_per_pattern
        self.generator = torch.Generator().manual_seed(cfg.seed + 1)

    def draw(self):
        patterns, fabrics = self.photos.shape[:2]
        chosen = torch.randperm(patterns, generator=self.generator)[: self.p]
        blocks = torch.rand(self.p, fabrics, generator=self.generator).argsort(dim=1)[:, : self.k]
        images = self.photos[chosen.unsqueeze(1), blocks].flatten(0, 1)
        turns = int(torch.randint(0, 4, (), generator=self.generator))
        return torch.rot90(images, turns, dims=(2, 3)).contiguous(), chosen.repeat_interleave(self.k)


@torch.no_grad()
def recall_at_one(encoder, photos):
    encoder.eval()
    patterns, each = photos.shape[:2]
    embedding = torch.cat([encoder(chunk) for chunk in photos.flatten(0, 1).split(144)])
    labels = torch.arange(patterns).repeat_interleave(each)
    distance = torch.cdist(embedding, embedding)
    distance.fill_diagonal_(float("inf"))
    encoder.train()
    return (labels[distance.argmin(dim=1)] == labels).float().mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train_photos, test_photos = catalogue(cfg)
    sampler = PatternSampler(train_photos, cfg)
    encoder = BlockEncoder(cfg)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.steps)

    running = 0.0
    start = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        images, labels = sampler.draw()
        loss = batch_hard_triplet(encoder(images), labels, cfg.margin)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.item()
        if step % cfg.eval_every == 0:
            recall = recall_at_one(encoder, test_photos)
            print(f"step {step:4d}  loss {running / cfg.eval_every:.4f}  recall@1 {recall:.3f}")
            running = 0.0
            torch.save({"model": encoder.state_dict(), "step": step}, "blocks.pt")
    seconds = time.perf_counter() - start
    rate = cfg.steps / seconds
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
