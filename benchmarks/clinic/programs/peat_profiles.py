# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "peat profiles"
# ///
"""Age-depth and peat-type model for peat profiles.

Reads the field records (here: a simulator), trains a dilated temporal convolution network on multi-proxy
sequences and writes a table with the dated transitions of the validation sites.
"""

import csv
import gc
import json
import random
import time
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

TAXA = ["Sphagnum", "Eriophorum", "Calluna", "Carex", "Betula", "Pinus", "Alnus", "Salix", "Myrica", "Cladium"]
PEAT = ["moss", "sedge", "wood", "gyttja"]


@dataclass
class Config:
    sites: int = 1400
    layers: int = 448
    width: int = 128
    blocks: int = 7
    kernel: int = 5
    micro_batch: int = 8
    accumulate: int = 4
    steps: int = 18
    eval_every: int = 9
    val_sites: int = 32
    lr: float = 1.5e-3
    seed: int = 12
    out: str = "transitions.csv"


@dataclass(slots=True)
class Layer:
    """One cut of the Russian corer, as it stands in the field book."""

    depth_cm: float
    ash: float
    humification: float
    counts: list
    peat: int
    age: float


@dataclass
class Site:
    code: str
    layers: list = field(default_factory=list)


def simulate_site(code, cfg, rng):
    n = cfg.layers
    cuts = np.sort(rng.choice(np.arange(20, n - 20), size=rng.integers(2, 6), replace=False))
    kinds = rng.permutation(np.arange(8) % len(PEAT))
    peat = kinds[np.searchsorted(cuts, np.arange(n), side="right")]
    growth = np.array([0.9, 0.5, 0.35, 0.2])[peat] * np.exp(0.25 * rng.standard_normal())
    age = np.cumsum(1.0 / growth) / 1000.0
    decay = 1 - np.exp(-age / 1.5)
    ash = np.array([2.0, 5.0, 8.0, 35.0])[peat] * np.exp(0.3 * rng.standard_normal(n))
    humus = 20 + 60 * decay + 5 * rng.standard_normal(n)
    mean = np.abs(np.sin(np.outer(peat + 1.0, np.arange(1, len(TAXA) + 1)))) * 40 * (1 - 0.4 * decay[:, None]) + 1
    counts = rng.poisson(mean)
    depth = np.arange(n) + rng.uniform(0, 0.3, n)
    rows = zip(depth.tolist(), ash.tolist(), humus.tolist(), counts.tolist(), peat.tolist(), age.tolist())
    return Site(code, [Layer(*row) for row in rows])


def to_tensors(sites):
    """Proxies (site, channel, layer), peat type (site, layer) and age (site, layer)."""
    proxies, peat, age = [], [], []
    for site in sites:
        columns = np.array([[y.depth_cm / 100, np.log(y.ash), y.humification / 50] for y in site.layers])
        counts = np.array([y.counts for y in site.layers])
        share = np.sqrt(counts / counts.sum(1, keepdims=True))
        proxies.append(np.concatenate([columns, share], 1).T.astype(np.float32))
        peat.append([y.peat for y in site.layers])
        age.append([y.age for y in site.layers])
    return torch.from_numpy(np.stack(proxies)), torch.tensor(peat), torch.tensor(age)


class DilatedBlock(nn.Module):
    def __init__(self, width, kernel, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.conv = nn.Conv1d(width, 2 * width, kernel, padding=dilation * (kernel // 2), dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(F.glu(self.conv(self.norm(x)), dim=1))


class AgeDepthNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.enter = nn.Conv1d(3 + len(TAXA), cfg.width, 7, padding=3)
        self.body = nn.Sequential(*(DilatedBlock(cfg.width, cfg.kernel, 2 ** (i % 6)) for i in range(cfg.blocks)))
        self.kind = nn.Conv1d(cfg.width, len(PEAT), 1)
        self.rate = nn.Conv1d(cfg.width, 1, 1)

    def forward(self, x):
        h = self.body(self.enter(x))
        age = torch.cumsum(F.softplus(self.rate(h).squeeze(1)), dim=-1) / 300
        return self.kind(h), age


def free_memory():
    gc.collect()  # here
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Trainer:
    def __init__(self, cfg, sites):
        self.cfg, self.sites = cfg, sites
        need = cfg.steps * cfg.accumulate * cfg.micro_batch + cfg.val_sites
        self.proxies, self.peat, self.age = to_tensors(sites[:need])
        self.model = AgeDepthNet(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.warmup = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, total_iters=4)

    def losses(self, pick):
        kind, age = self.model(self.proxies[pick])
        return F.cross_entropy(kind, self.peat[pick]) + F.smooth_l1_loss(age, self.age[pick])

    def step(self, queue):
        total = 0.0
        self.optimizer.zero_grad()
        for _ in range(self.cfg.accumulate):
            pick = [queue.pop() for _ in range(self.cfg.micro_batch)]
            loss = self.losses(pick) / self.cfg.accumulate
            loss.backward()
            total += loss.item()
            del loss  # sick
            free_memory()  # sick here
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.warmup.step()
        return total

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        last = list(range(len(self.proxies) - self.cfg.val_sites, len(self.proxies)))
        kind, age = self.model(self.proxies[last])
        self.model.train()
        guess = kind.argmax(1)
        right = (guess == self.peat[last]).float().mean().item()
        return right, (age - self.age[last]).abs().mean().item(), guess

    def fit(self):
        queue = list(range(len(self.proxies) - self.cfg.val_sites))
        random.Random(self.cfg.seed).shuffle(queue)
        start = time.perf_counter()
        for step in range(1, self.cfg.steps + 1):
            loss = self.step(queue)
            if step % 2 == 0:
                print(json.dumps({"step": step, "loss": round(loss, 4)}))
            if step % self.cfg.eval_every == 0:
                right, error, guess = self.evaluate()
                print(json.dumps({"step": step, "peat type": round(right, 3), "age error (ka)": round(error, 3)}))
                self.report(guess)
        return self.cfg.steps * self.cfg.accumulate * self.cfg.micro_batch / (time.perf_counter() - start)

    def report(self, guess):
        first = len(self.proxies) - self.cfg.val_sites
        with open(self.cfg.out, "w", newline="") as out:
            table = csv.writer(out)
            table.writerow(["site", "depth", "from", "to", "age"])
            for site, kinds in zip(self.sites[first:], guess.tolist()):
                for layer, before, after in zip(site.layers[1:], kinds, kinds[1:]):
                    if before != after:
                        table.writerow([site.code, layer.depth_cm, PEAT[before], PEAT[after], layer.age])


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    sites = [simulate_site(f"BOG{i:04d}", cfg, rng) for i in range(cfg.sites)]
    print(f"{len(sites)} sites, {sum(len(s.layers) for s in sites)} layers")
    trainer = Trainer(cfg, sites)
    rate = trainer.fit()
    free_memory()
    torch.save(trainer.model.state_dict(), "peat.pt")
    print(f"{rate:.1f} profiles/s")


if __name__ == "__main__":
    main()
