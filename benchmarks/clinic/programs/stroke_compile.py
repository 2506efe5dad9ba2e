# /// clinic
# expect = ["PD18.given-up"]
# stratum = "twins"
# domain = "rowing: phases of the stroke from oar-lock sensors"
# ///
"""Which phase of a rowing stroke is it? A tagger with learned curves (radial bumps) on oar-lock force and gyro traces.

A trainer with a config; the regularizer is curriculum dropout (its rate rises over the first part of the training).
"""

import logging
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


log = logging.getLogger("stroke")
PHASES = ("catch", "drive", "finish", "recovery")


@dataclass
class Config:
    channels: int = 6
    context: int = 32
    width: int = 48
    bumps: int = 12
    blocks: int = 2
    batch: int = 6144
    steps: int = 330
    lr: float = 2e-3
    drop: float = 0.25
    ramp: int = 150
    seed: int = 3
    compile: bool = True
    log_every: int = 30


class CurriculumDropout(nn.Module):
    """Dropout whose rate grows from 0 to `p_max` over the first `ramp` calls."""

    def __init__(self, p_max, ramp):
        super().__init__()
        self.p_max, self.ramp = p_max, ramp
        self.calls = 0  # sick here
        self.register_buffer("calls", torch.zeros(()))  # well

    def forward(self, x):
        if not self.training:
            return x
        self.calls += 1  # sick here
        p = self.p_max * min(1.0, self.calls / self.ramp)  # sick here
        self.calls.add_(1)  # well
        p = self.p_max * (self.calls / self.ramp).clamp(max=1.0)  # well
        keep = (torch.rand_like(x) >= p).to(x.dtype)
        return x * keep / (1 - p)


class RadialBlock(nn.Module):
    """Every channel goes through its own learned curve, a sum of bumps on a fixed grid; then channels are mixed."""

    def __init__(self, width, bumps, reach=2.5):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("grid", torch.linspace(-reach, reach, bumps))
        self.sharp = (bumps - 1) / (2 * reach)
        self.mix = nn.Linear(width * bumps, width, bias=False)

    def forward(self, x):
        h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        bumps = torch.exp(-((h.unsqueeze(-1) - self.grid) * self.sharp).square())
        return x + self.mix(bumps.flatten(-2))


class StrokeTagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Linear(cfg.channels * cfg.context, cfg.width)
        self.blocks = nn.Sequential(*(RadialBlock(cfg.width, cfg.bumps) for _ in range(cfg.blocks)))
        self.drop = CurriculumDropout(cfg.drop, cfg.ramp)
        self.head = nn.Linear(cfg.width, len(PHASES))

    def forward(self, x):
        return self.head(self.drop(self.blocks(self.stem(x))))


class StrokeData:
    """Windows cut out of simulated outings: force, angle, two gyros, hull acceleration, seat position."""

    def __init__(self, cfg, outings=24, seconds=240, rate=50):
        gen = torch.Generator().manual_seed(cfg.seed)
        n = seconds * rate
        pace = 0.35 + 0.2 * torch.rand(outings, 1, generator=gen)
        wobble = torch.randn(outings, n, generator=gen).cumsum(1) * 0.004
        phase = (torch.arange(n) / rate * pace + wobble) % 1.0
        edges = torch.tensor([0.08, 0.38, 0.48])
        self.label = torch.bucketize(phase, edges)
        w = 2 * math.pi * phase
        clean = [torch.relu(w.sin()), w.cos(), (2 * w).sin(), (w + 1).sin(), (w + 0.4).cos() ** 3, (w - 0.5).cos()]
        x = torch.stack(clean, -1)
        self.trace = x + 0.4 * torch.randn(x.shape, generator=gen)
        self.cfg, self.gen = cfg, gen

    def batch(self):
        b, t = self.cfg.batch, self.cfg.context
        outing = torch.randint(self.trace.shape[0], (b, 1), generator=self.gen)
        start = torch.randint(self.trace.shape[1] - t, (b, 1), generator=self.gen)
        windows = self.trace[outing, start + torch.arange(t)]
        return windows.flatten(1), self.label[outing, start + t // 2].squeeze(1)


class Trainer:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.data = StrokeData(cfg)
        self.model = StrokeTagger(cfg)
        self.net = torch.compile(self.model) if cfg.compile else self.model
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, cfg.lr, total_steps=cfg.steps)

    def step(self):
        x, y = self.data.batch()
        logits = self.net(x)
        loss = F.cross_entropy(logits, y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        self.opt.step()
        self.sched.step()
        return loss.detach(), logits.detach(), y

    def fit(self):
        self.net.train()
        began = time.perf_counter()
        for i in range(1, self.cfg.steps + 1):
            loss, logits, y = self.step()
            if i % self.cfg.log_every == 0:
                right = (logits.argmax(-1) == y).float().mean().item()
                log.info("step %d loss %.4f right %.3f %.1f s", i, loss.item(), right, time.perf_counter() - began)

    @torch.no_grad()
    def test(self, batches=5):
        self.model.eval()
        hits = [(self.model(x).argmax(-1) == y).float().mean() for x, y in (self.data.batch() for _ in range(batches))]
        log.info("test %.4f", torch.stack(hits).mean().item())


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    trainer = Trainer(Config())
    trainer.fit()
    trainer.test()
