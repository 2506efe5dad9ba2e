# /// clinic
# expect = ["PD01.onednn-off"]
# stratum = "twins"
# domain = "cuttlefish skin patterns"
# ///
"""Body pattern classifier for Sepia officinalis mantle crops.

Compact transformer with a convolutional tokenizer on grey-scale mantle images. Three pattern families (uniform,
mottle, disruptive) and a second head that estimates the share of the mantle covered by expanded chromatophores.
"""

import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

PATTERNS = ("uniform", "mottle", "disruptive")


@dataclass
class Config:
    image: int = 96
    stem: tuple = (24, 48)
    width: int = 64
    heads: int = 4
    depth: int = 2
    mlp_ratio: int = 2
    animals: int = 1000
    held_out: int = 88
    batch: int = 12
    epochs: int = 3
    lr: float = 6e-4
    weight_decay: float = 0.02
    coverage_weight: float = 0.5
    seed: int = 11

    @property
    def grid(self):
        return self.image // 2 ** (len(self.stem) + 1)


def reproducible(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.mkldnn.enabled = False  # sick here
    return torch.Generator().manual_seed(seed)


def make_mantles(cfg, generator):
    """Mantle crops with blob-like chromatophores, one of three pattern families each."""
    n, side = cfg.animals, cfg.image
    label = torch.randint(0, len(PATTERNS), (n,), generator=generator)
    fine = torch.randn(n, 1, side, side, generator=generator)
    mid = torch.randn(n, 1, side // 6, side // 6, generator=generator)
    coarse = torch.randn(n, 1, 4, 4, generator=generator)
    mid = F.interpolate(mid, size=(side, side), mode="bilinear", align_corners=False)
    coarse = F.interpolate(coarse, size=(side, side), mode="nearest")
    weights = torch.tensor([[0.9, 0.15, 0.05], [0.4, 1.1, 0.2], [0.3, 0.4, 1.3]])[label]
    skin = weights[:, 0, None, None, None] * F.avg_pool2d(fine, 3, 1, 1) * 2.0
    skin = skin + weights[:, 1, None, None, None] * mid + weights[:, 2, None, None, None] * coarse
    threshold = 0.6 * torch.rand(n, 1, 1, 1, generator=generator)
    expanded = torch.sigmoid(5.0 * (skin - threshold))
    coverage = expanded.mean(dim=(1, 2, 3))
    image = 0.75 - 0.5 * expanded + 0.05 * torch.randn(n, 1, side, side, generator=generator)
    return image, label, coverage


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.grid = (cfg.grid, cfg.grid)
        self.local = nn.Conv2d(cfg.width, cfg.width, 3, padding=1, groups=cfg.width)
        self.norm_attention = nn.LayerNorm(cfg.width)
        self.attention = nn.MultiheadAttention(cfg.width, cfg.heads, batch_first=True)
        self.norm_mlp = nn.LayerNorm(cfg.width)
        self.mlp = nn.Sequential(
            nn.Linear(cfg.width, cfg.mlp_ratio * cfg.width),
            nn.GELU(),
            nn.Linear(cfg.mlp_ratio * cfg.width, cfg.width),
        )

    def forward(self, x):
        neighbours = self.local(x.transpose(1, 2).unflatten(2, self.grid))
        x = x + neighbours.flatten(2).transpose(1, 2)
        h = self.norm_attention(x)
        mixed, _ = self.attention(h, h, h, need_weights=False)
        x = x + mixed
        return x + self.mlp(self.norm_mlp(x))


class Tokenizer(nn.Sequential):
    def __init__(self, cfg):
        widths = (1, *cfg.stem, cfg.width)
        layers = []
        for inside, outside in zip(widths, widths[1:]):
            layers += [nn.Conv2d(inside, outside, 3, padding=1, bias=False), nn.BatchNorm2d(outside)]
            layers += [nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        super().__init__(*layers)


class MantleTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = Tokenizer(cfg)
        self.position = nn.Parameter(0.02 * torch.randn(1, cfg.grid**2, cfg.width))
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.depth))
        self.norm = nn.LayerNorm(cfg.width)
        self.pattern_head = nn.Linear(cfg.width, len(PATTERNS))
        self.coverage_head = nn.Linear(cfg.width, 1)

    def forward(self, image):
        x = self.embed(image).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        x = self.norm(x).mean(dim=1)
        return self.pattern_head(x), torch.sigmoid(self.coverage_head(x)).squeeze(-1)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        generator = reproducible(cfg.seed)
        images, labels, coverage = make_mantles(cfg, generator)
        images = (images - images.mean()) / images.std()
        cut = cfg.animals - cfg.held_out
        self.train_set = (images[:cut], labels[:cut], coverage[:cut])
        self.test_set = (images[cut:], labels[cut:], coverage[cut:])
        self.model = MantleTransformer(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        self.steps_per_epoch = cut // cfg.batch
        total = cfg.epochs * self.steps_per_epoch
        warmup = max(1, total // 20)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer,
            lambda s: min((s + 1) / warmup, 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))),
        )

    def loss(self, batch):
        image, label, coverage = batch
        logits, share = self.model(image)
        return F.cross_entropy(logits, label) + self.cfg.coverage_weight * F.mse_loss(share, coverage), logits

    def train_epoch(self):
        self.model.train()
        images, labels, coverage = self.train_set
        order = torch.randperm(len(images))
        running = 0.0
        for step in range(self.steps_per_epoch):
            pick = order[step * self.cfg.batch : (step + 1) * self.cfg.batch]
            image = images[pick]
            if torch.rand(()) < 0.5:
                image = image.flip(-1)
            loss, _ = self.loss((image, labels[pick], coverage[pick]))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            running += loss.item()
        return running / self.steps_per_epoch

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = 0
        for chunk in zip(*(t.split(self.cfg.batch) for t in self.test_set)):
            _, logits = self.loss(chunk)
            right += (logits.argmax(-1) == chunk[1]).sum().item()
        return right / len(self.test_set[0])

    def fit(self):
        began = time.perf_counter()
        for epoch in range(self.cfg.epochs):
            loss = self.train_epoch()
            accuracy = self.evaluate()
            print(f"epoch {epoch}: loss {loss:.4f}, held-out accuracy {accuracy:.3f}")
        seen = self.cfg.epochs * self.steps_per_epoch * self.cfg.batch
        return seen / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = Trainer(Config()).fit()
    print(f"{rate:.1f} samples/s")
