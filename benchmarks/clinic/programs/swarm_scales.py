# /// clinic
# expect = ["PD08.unused-gradients"]
# stratum = "twins"
# domain = "swarm warnings from beehive scales"
# ///
"""Mean teacher for swarm warnings from hive scales.

Few beekeepers write down when a colony swarmed, yet every hive on the heath stands on a scale.
A small transformer learns from the few labelled weeks and from many unlabelled ones.
"""

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

STATES = ("steady", "flow", "robbed", "swarm")


@dataclass
class Config:
    hours: int = 192
    patch: int = 4
    width: int = 64
    depth: int = 3
    heads: int = 4
    labelled: int = 320
    unlabelled: int = 1920
    held: int = 400
    batch_labelled: int = 8
    batch_unlabelled: int = 64
    epochs: int = 18
    lr: float = 1e-3
    decay: float = 0.99
    consistency: float = 4.0
    ramp: int = 4


def weigh(rng, hours):
    """Weight of one hive, hour by hour, and what the colony did in that time."""
    state = rng.integers(len(STATES))
    t = np.arange(hours)
    daily = rng.uniform(0.2, 0.5) * np.sin(2 * np.pi * (t + rng.uniform(-3, 3)) / 24)
    kilos = daily - 0.004 * t + np.cumsum(rng.normal(0, 0.03, hours))
    at = rng.integers(24, hours - 48)
    if state == 1:
        kilos += np.clip(t - at, 0, 48) * rng.uniform(0.03, 0.06)
    elif state == 2:
        kilos -= np.clip(t - at, 0, 36) * rng.uniform(0.03, 0.06)
    elif state == 3:
        kilos -= (t >= at) * rng.uniform(1.2, 2.2)
    return (kilos - kilos.mean()).astype(np.float32), state


def weigh_many(count, hours, seed):
    rng = np.random.default_rng(seed)
    kilos, states = zip(*(weigh(rng, hours) for _ in range(count)))
    return torch.from_numpy(np.stack(kilos)), torch.tensor(states)


class ColonyNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        tokens = cfg.hours // cfg.patch
        self.patch = cfg.patch
        self.embed = nn.Linear(cfg.patch, cfg.width)
        self.place = nn.Parameter(0.02 * torch.randn(tokens, cfg.width))
        layer = nn.TransformerEncoderLayer(
            cfg.width, cfg.heads, 3 * cfg.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.width)
        self.out = nn.Linear(cfg.width, len(STATES))

    def forward(self, kilos):
        x = self.embed(kilos.unflatten(1, (-1, self.patch))) + self.place
        return self.out(self.norm(self.encoder(x)).mean(1))


class Jitter:
    """Drift of the scale, rain on the lid, and noise of the cell."""

    def __init__(self, noise, rain):
        self.noise, self.rain = noise, rain

    def __call__(self, kilos):
        n, hours = kilos.shape
        slope = torch.linspace(-1, 1, hours) * torch.randn(n, 1) * self.rain
        return kilos + slope + self.noise * torch.randn_like(kilos)


class MeanTeacher:
    def __init__(self, cfg):
        self.cfg = cfg
        self.student = ColonyNet(cfg)
        self.teacher = copy.deepcopy(self.student)
        self.weak, self.strong = Jitter(0.02, 0.02), Jitter(0.08, 0.15)
        self.opt = torch.optim.AdamW(self.student.parameters(), lr=cfg.lr, weight_decay=0.02)
        self.step = 0

    @torch.no_grad()
    def follow(self):
        decay = min(self.cfg.decay, 1 - 1 / (self.step + 1))
        mine, theirs = list(self.teacher.parameters()), list(self.student.parameters())
        torch._foreach_lerp_(mine, theirs, 1 - decay)

    def agreement(self, kilos):
        wanted = self.teacher(self.weak(kilos)).softmax(1)  # sick here
        with torch.no_grad():  # well
            wanted = self.teacher(self.weak(kilos)).softmax(1)  # well
        return F.mse_loss(self.student(self.strong(kilos)).softmax(1), wanted)

    def update(self, kilos, states, others, weight):
        supervised = F.cross_entropy(self.student(self.strong(kilos)), states)
        loss = supervised + weight * self.agreement(others)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.step += 1
        self.follow()
        return supervised.item()

    def fit(self, labelled, unlabelled, held):
        cfg = self.cfg
        kilos, states = labelled
        per_epoch = len(unlabelled) // cfg.batch_unlabelled
        for epoch in range(cfg.epochs):
            weight = cfg.consistency * math.exp(-5 * max(0.0, 1 - epoch / cfg.ramp) ** 2)
            order = torch.randperm(len(unlabelled))
            total = 0.0
            for i in range(per_epoch):
                others = unlabelled[order[i * cfg.batch_unlabelled :][: cfg.batch_unlabelled]]
                pick = torch.randint(len(kilos), (cfg.batch_labelled,))
                total += self.update(kilos[pick], states[pick], others, weight)
            if epoch % 3 == 2:
                print(f"{epoch + 1:3d}: loss {total / per_epoch:.3f}, held-out {self.judge(*held):.3f}")

    @torch.no_grad()
    def judge(self, kilos, states):
        guess = torch.cat([self.teacher(k).argmax(1) for k in kilos.split(100)])
        return (guess == states).float().mean().item()


def main():
    torch.manual_seed(0)
    cfg = Config()
    labelled = weigh_many(cfg.labelled, cfg.hours, seed=1)
    unlabelled, _ = weigh_many(cfg.unlabelled, cfg.hours, seed=2)
    held = weigh_many(cfg.held, cfg.hours, seed=3)
    begin = time.perf_counter()
    MeanTeacher(cfg).fit(labelled, unlabelled, held)
    print(f"training took {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
