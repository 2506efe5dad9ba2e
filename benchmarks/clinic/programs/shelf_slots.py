# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "vending machines"
# ///
"""Fill grade of vending-machine slots from door-camera crops.

The shelf encoder is the shared release of the vision group; a customer gets its own last stage and head, trained
here on the crops of that customer's machines.
"""

import json
import logging
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("slots")


@dataclass
class Config:
    customer: str = "metro-north"
    data_version: str = "crops-0.9.3"
    encoder_release: str = "shelfnet-5"
    seed: int = 31
    crops: int = 1008
    held_out: int = 256
    size: int = 48
    grades: int = 6
    batch: int = 24
    epochs: int = 6
    lr: float = 1e-3
    head_lr: float = 3e-3
    weight_decay: float = 0.05
    clip: float = 1.0
    ema: float = 0.98
    warmup: int = 20
    patience: int = 6
    precision: str = "no"
    log_every: int = 10
    out: str = "slot_run"


def make_crops(cfg, n, seed):
    """Spiral slots seen from the front: rows of cans in front of a dark back wall, glare of the glass door."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0 : 1 : cfg.size * 1j, 0 : 1 : cfg.size * 1j].astype(np.float32)
    grade = rng.integers(0, cfg.grades, n)
    image = 0.1 + 0.05 * rng.normal(size=(n, 3, cfg.size, cfg.size)).astype(np.float32)
    colour = rng.uniform(0.2, 1.0, (n, 3, 1, 1)).astype(np.float32)
    tilt, glare = rng.uniform(-0.1, 0.1, (n, 1, 1)), rng.uniform(0, 1, (n, 1, 1))
    for k in range(cfg.grades - 1):
        centre = 0.12 + 0.19 * k
        can = (np.abs(x - centre - tilt * (y - 0.5)) < 0.07) & (np.abs(y - 0.55) < 0.32)
        image += colour * (can & (grade[:, None, None] > k))[:, None] * (0.5 + 0.5 * np.cos(20 * (x - centre)))
    image += 0.4 * np.exp(-(((x - glare) / 0.08) ** 2))[:, None]
    image = (image - image.mean()) / image.std()
    return TensorDataset(torch.from_numpy(image.astype(np.float32)), torch.from_numpy(grade))


class Residual(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Conv2d(before, width, 1, stride, bias=False) if stride > 1 or before != width else nn.Identity()

    def forward(self, x):
        z = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(z + self.short(x))


class ShelfEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.stages = nn.Sequential(Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 96, 1))

    def forward(self, x):
        return self.stages(self.stem(x))


class SlotModel(nn.Module):
    def __init__(self, encoder, grades):
        super().__init__()
        self.encoder = encoder
        self.stage = Residual(96, 160, 2)
        self.head = nn.Sequential(nn.Linear(160, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, grades))

    def train(self, mode=True):
        super().train(mode)
        self.encoder.eval()
        return self

    def forward(self, x):
        return self.head(self.stage(self.encoder(x)).mean((2, 3)))  # here


def load_release(name):
    """Weights of a release; the file store is keyed by the name."""
    with torch.random.fork_rng():
        torch.manual_seed(sum(map(ord, name)))
        encoder = ShelfEncoder()
        with torch.no_grad():
            for _ in range(2):
                encoder(torch.randn(64, 3, 48, 48))
    return encoder.eval()


def parameter_groups(model, cfg):
    """Only the customer's part is trained: last stage and head."""
    model.encoder.requires_grad_(False)  # well
    parts = {model.stage: cfg.lr, model.head: cfg.head_lr}  # here
    return [{"params": list(part.parameters()), "lr": lr} for part, lr in parts.items()]


class Ema:
    def __init__(self, params, decay):
        self.params, self.decay = params, decay
        self.shadow = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.shadow, self.params, 1 - self.decay)

    @torch.no_grad()
    def swap(self):
        for p, s in zip(self.params, self.shadow):
            kept = p.clone()
            p.copy_(s)
            s.copy_(kept)


def warm_cosine(cfg, total):
    return lambda step: min(1.0, (step + 1) / cfg.warmup) * (0.51 + 0.49 * math.cos(math.pi * min(1.0, step / total)))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = torch.cat([model(x).argmax(1) == y for x, y in loader])
    model.train()
    return hits.float().mean().item()


def main():
    cfg = Config()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    set_seed(cfg.seed)
    accelerator = Accelerator(cpu=True, mixed_precision=cfg.precision)
    out = Path(cfg.out)
    out.mkdir(exist_ok=True)
    journal = open(out / "journal.jsonl", "w")
    journal.write(json.dumps(asdict(cfg)) + "\n")
    train = DataLoader(make_crops(cfg, cfg.crops, cfg.seed), cfg.batch, shuffle=True, drop_last=True)
    held = DataLoader(make_crops(cfg, cfg.held_out, cfg.seed + 1), 64)
    model = SlotModel(load_release(cfg.encoder_release), cfg.grades)
    groups = parameter_groups(model, cfg)
    optimizer = torch.optim.AdamW(groups, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_cosine(cfg, cfg.epochs * len(train)))
    model, optimizer, train, held, schedule = accelerator.prepare(model, optimizer, train, held, schedule)
    trained = [p for g in groups for p in g["params"]]
    ema, best, stale, step = Ema(trained, cfg.ema), 0.0, 0, 0
    model.train()
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        for x, y in train:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            accelerator.backward(loss)
            norm = accelerator.clip_grad_norm_(trained, cfg.clip)
            if torch.isfinite(norm):
                optimizer.step()
                ema.update()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            if step % cfg.log_every == 0:
                journal.write(json.dumps({"step": step, "loss": loss.item(), "norm": norm.item()}) + "\n")
        ema.swap()
        accuracy = evaluate(model, held)
        stale = 0 if accuracy > best else stale + 1
        if accuracy > best:
            best = accuracy
            torch.save({"model": model.state_dict(), "data": cfg.data_version}, out / "best.pt")
        ema.swap()
        log.info("epoch %d accuracy %.4f", epoch, accuracy)
        if stale >= cfg.patience:
            break
    rate = step * cfg.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} crops/s")


if __name__ == "__main__":
    main()
