# /// clinic
# expect = ["PD15.growing-work", "PD10.repeated-work"]
# stratum = "twins"
# domain = "bakery ovens"
# ///
"""Bake grade of loaves from deck-oven thermograms. Resumable training with a metrics registry and a JSONL run log."""

import argparse
import copy
import json
import logging
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassAveragePrecision,
    MulticlassRecallAtFixedPrecision,
)

GRADES = ["raw", "pale", "light", "golden", "bold", "dark", "burnt", "split", "blister", "collapsed"]
log = logging.getLogger("oven")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-version", default="ovens-r12")
    parser.add_argument("--loaves", type=int, default=3200)
    parser.add_argument("--held-out", type=int, default=480)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--ema", type=float, default=0.99)
    parser.add_argument("--smoothing", type=float, default=0.05)
    parser.add_argument("--patience", type=int, default=8)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--out", type=Path, default=Path("oven_run"))
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args()


def thermograms(n, seed):
    """32 x 32 surface temperatures: a warm dome with crust rim, scoring cuts, blisters and camera noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[-1:1:32j, -1:1:32j].astype(np.float32)
    grade = rng.integers(0, len(GRADES), n)
    heat = np.where(grade < 7, grade / 6.0, 0.55)[:, None, None] + 0.07 * rng.normal(size=(n, 1, 1))
    cx, cy = rng.uniform(-0.2, 0.2, (2, n, 1, 1))
    r = np.sqrt(((x - cx) / rng.uniform(0.6, 0.9, (n, 1, 1))) ** 2 + ((y - cy) / 0.6) ** 2)
    dome = heat * np.exp(-(r**4)) + 0.3 * heat * np.exp(-(((r - 0.9) / 0.15) ** 2))
    cut = np.exp(-(((x - y * rng.uniform(-1, 1, (n, 1, 1)) - cx) / 0.07) ** 2)) * (r < 0.9)
    dome = dome + 0.4 * cut * (grade == 7)[:, None, None]
    spots = np.maximum(np.sin(9 * x + 20 * cx) * np.sin(9 * y + 20 * cy), 0) ** 3
    dome = dome + 0.5 * spots * (grade == 8)[:, None, None] - 0.4 * np.exp(-(r**2) * 6) * (grade == 9)[:, None, None]
    image = dome + 0.18 * rng.normal(size=dome.shape)
    return torch.from_numpy(image[:, None].astype(np.float32)), torch.from_numpy(grade)


class CrustNet(nn.Module):
    def __init__(self, classes):
        super().__init__()
        layers, before = [], 1
        for width in (16, 32, 64):
            layers += [nn.Conv2d(before, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)]
            layers += [nn.ReLU(), nn.MaxPool2d(2)]
            before = width
        self.body = nn.Sequential(*layers)
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, classes)
        )

    def forward(self, x):
        return self.head(self.body(x))


class MetricsRegistry:
    """One collection for each split; names come out as split/metric."""

    def __init__(self, classes, splits=("train", "val")):
        base = MetricCollection(
            {
                "acc": MulticlassAccuracy(classes),
                "auroc": MulticlassAUROC(classes),
                "ap": MulticlassAveragePrecision(classes),
                "recall_at_p90": MulticlassRecallAtFixedPrecision(classes, min_precision=0.9),
            }
        )
        self.splits = {s: base.clone(prefix=f"{s}/") for s in splits}

    def update(self, split, logits, target):
        self.splits[split].update(logits.detach().softmax(1), target)

    def values(self, split):
        out = {}
        for name, value in self.splits[split].compute().items():
            value = value[0].mean() if isinstance(value, tuple) else value
            out[name] = round(value.item(), 5)
        return out

    def reset(self, split):
        self.splits[split].reset()


class OvenTrainer:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.x, self.y = thermograms(args.loaves, args.seed)
        self.vx, self.vy = thermograms(args.held_out, args.seed + 1)
        self.model = CrustNet(len(GRADES))
        self.ema = copy.deepcopy(self.model).eval().requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.02)
        total = args.epochs * (args.loaves // args.batch)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, args.lr, total_steps=total)
        self.registry = MetricsRegistry(len(GRADES))
        self.step, self.epoch, self.best, self.stale = 0, 0, 0.0, 0
        args.out.mkdir(exist_ok=True)
        self.journal = open(args.out / "journal.jsonl", "a")
        if args.resume and (args.out / "last.pt").exists():
            self.restore(torch.load(args.out / "last.pt"))

    def restore(self, state):
        for part in ("model", "ema", "optimizer", "schedule"):
            getattr(self, part).load_state_dict(state[part])
        self.step, self.epoch, self.best = state["step"], state["epoch"], state["best"]

    def checkpoint(self, name):
        parts = {p: getattr(self, p).state_dict() for p in ("model", "ema", "optimizer", "schedule")}
        torch.save({**parts, "step": self.step, "epoch": self.epoch, "best": self.best}, self.args.out / name)

    def record(self, event, **fields):
        row = {"event": event, "step": self.step, "epoch": self.epoch, "data": self.args.data_version, **fields}
        self.journal.write(json.dumps(row) + "\n")

    def update_ema(self):
        with torch.no_grad():
            torch._foreach_lerp_(list(self.ema.parameters()), list(self.model.parameters()), 1 - self.args.ema)
            for shadow, live in zip(self.ema.buffers(), self.model.buffers()):
                shadow.copy_(live)

    def train_step(self, x, y):
        logits = self.model(x)
        loss = F.cross_entropy(logits, y, label_smoothing=self.args.smoothing)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 2.0)
        self.optimizer.step()
        self.schedule.step()
        self.update_ema()
        self.registry.update("train", logits, y)
        self.step += 1
        fields = {"loss": round(loss.item(), 5), "lr": self.schedule.get_last_lr()[0]}
        fields |= self.registry.values("train")  # sick here
        self.record("step", **fields)

    @torch.no_grad()
    def validate(self):
        for x, y in zip(self.vx.split(160), self.vy.split(160)):
            self.registry.update("val", self.ema(x), y)
        values = self.registry.values("val")
        self.registry.reset("val")
        return values

    def fit(self):
        while self.epoch < self.args.epochs and self.stale < self.args.patience:
            self.model.train()
            order = torch.randperm(len(self.x))
            for index in order.split(self.args.batch):
                self.train_step(self.x[index], self.y[index])
            values = self.registry.values("train") | self.validate()
            self.registry.reset("train")
            self.epoch += 1
            self.record("epoch", **values)
            self.stale = 0 if values["val/ap"] > self.best else self.stale + 1
            if self.stale == 0:
                self.best = values["val/ap"]
                self.checkpoint("best.pt")
            self.checkpoint("last.pt")
            self.journal.flush()
            log.info("epoch %d val ap %.4f acc %.4f", self.epoch, values["val/ap"], values["val/acc"])


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    args = parse()
    trainer = OvenTrainer(args)
    first, began = trainer.step, time.perf_counter()
    trainer.fit()
    rate = (trainer.step - first) * args.batch / (time.perf_counter() - began)
    print(f"{rate:.1f} loaves/s")


if __name__ == "__main__":
    main()
