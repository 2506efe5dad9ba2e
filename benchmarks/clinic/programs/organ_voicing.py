# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "voicing of organ flue pipes"
# ///
# # Voicing flue pipes
#
# A pipe organ builder records every pipe at the voicing machine: the level of
# the first partials at several wind pressures. From the recording we want the
# cut-up, the languid height and the nicking depth that the voicer chose.

# In[1]:
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    pipes: int = 20480
    held_out: int = 1024
    partials: int = 24
    pressures: int = 6
    width: int = 256
    depth: int = 4
    batch: int = 512
    epochs: int = 34
    lr: float = 1.2e-3
    seed: int = 11


cfg = Config()
torch.manual_seed(cfg.seed)


# In[2]: a crude physical model of the pipes
def record_pipes(n, cfg, rng):
    cutup = rng.uniform(0.18, 0.38, n)
    languid = rng.normal(0.0, 1.0, n)
    nicking = rng.gamma(2.0, 0.5, n)
    scale = rng.normal(0.0, 1.0, n)
    k = np.arange(1, cfg.partials + 1)
    wind = np.linspace(50.0, 110.0, cfg.pressures)
    jet = np.sqrt(wind)[None, :, None] / (cutup[:, None, None] * 30.0)
    rolloff = -6.0 * np.log2(k)[None, None, :] * (1.2 + 0.3 * scale[:, None, None]) / (0.4 + jet)
    offset = 3.0 * np.sin(k[None, None, :] * (0.3 + 0.25 * languid[:, None, None]) * jet)
    chiff = -nicking[:, None, None] * 0.12 * k[None, None, :] * jet
    level = rolloff + offset + chiff + rng.normal(0.0, 0.6, rolloff.shape)
    targets = np.stack([cutup, languid, nicking], axis=1)
    return level.reshape(n, -1), targets


# In[3]: data
class VoicingTable:
    """Keeps all recordings in memory, standardised by the training part."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        x, y = record_pipes(cfg.pipes + cfg.held_out, cfg, rng)
        n = cfg.pipes
        self.x_mean, self.x_std = x[:n].mean(0), x[:n].std(0)
        self.y_mean, self.y_std = y[:n].mean(0), y[:n].std(0)
        x = (x - self.x_mean) / self.x_std
        y = (y - self.y_mean) / self.y_std
        self.train = self._tensors(x[:n], y[:n])
        self.test = self._tensors(x[n:], y[n:])

    @staticmethod
    def _tensors(x, y):
        return torch.from_numpy(x), torch.from_numpy(y)  # sick here
        return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y.astype(np.float32))  # well

    def batches(self, size):
        x, y = self.train
        order = torch.randperm(len(x))
        for start in range(0, len(x), size):
            idx = order[start : start + size]
            yield x[idx], y[idx]


table = VoicingTable(cfg)


# In[4]: model
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.relu(self.up(self.norm(x))))


class VoicingNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.inp = nn.Linear(cfg.partials * cfg.pressures, cfg.width)
        self.blocks = nn.Sequential(*[Block(cfg.width) for _ in range(cfg.depth)])
        self.out = nn.Sequential(nn.LayerNorm(cfg.width), nn.Linear(cfg.width, 3))

    def forward(self, x):
        return self.out(self.blocks(self.inp(x)))


net = VoicingNet(cfg)
net = net.to(table.train[0].dtype)  # sick here
print(f"{sum(p.numel() for p in net.parameters()):,} parameters")

# In[5]: training
opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-2, fused=True)
steps = cfg.epochs * -(-cfg.pipes // cfg.batch)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=cfg.lr, total_steps=steps)


@torch.no_grad()
def score(net, x, y):
    net.eval()
    residual = net(x) - y
    net.train()
    return (1.0 - residual.pow(2).mean(0) / y.var(0)).tolist()


begin = time.perf_counter()
for epoch in range(cfg.epochs):
    losses = []
    for x, y in table.batches(cfg.batch):
        loss = F.smooth_l1_loss(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.detach())
    if epoch % 10 == 0 or epoch == cfg.epochs - 1:
        r2 = score(net, *table.test)
        print(
            f"epoch {epoch:3d}  loss {torch.stack(losses).mean():.4f}  "
            f"R2 cut-up {r2[0]:.3f}  languid {r2[1]:.3f}  nicking {r2[2]:.3f}"
        )
seconds = time.perf_counter() - begin

# In[6]:
print(f"total training seconds: {seconds:.1f}")
