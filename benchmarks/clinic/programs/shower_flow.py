# /// clinic
# expect = ["PD20.small-evaluation-batches"]
# stratum = "twins"
# domain = "particle physics, normalizing flow"
# ///
"""Trains a conditional coupling flow on the layer energies of simulated calorimeter showers."""

import math
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)

N_LAYERS = 44
N_COND = 3
N_TRAIN = 24576
N_VAL = 512
BATCH = 512
STEPS = 450
VALIDATE_EVERY = 50
BLOCKS = 6
HIDDEN = 192


def simulate(n):
    energy = torch.rand(n, 1) * 2.0 + 0.5
    angle = (torch.rand(n, 1) - 0.5) * 0.8
    start = torch.rand(n, 1) * 6.0
    depth = torch.arange(N_LAYERS).float()
    t = (depth - start).clamp(min=0.0) / (2.2 + 0.3 * angle.abs())
    profile = energy * t.pow(2.3) * torch.exp(-0.7 * t)
    noise = torch.randn(n, N_LAYERS) * 0.08
    deposits = torch.log1p(profile * torch.exp(0.2 * torch.randn(n, N_LAYERS)) + 0.01) + noise
    cond = torch.cat([energy, angle, start / 6.0], dim=1)
    return deposits, cond


class Coupling(nn.Module):
    def __init__(self, dim, cond_dim, hidden, mask):
        super().__init__()
        self.register_buffer("keep", mask.nonzero().flatten())
        self.register_buffer("move", (~mask).nonzero().flatten())
        self.register_buffer("inverse", torch.argsort(torch.cat([self.keep, self.move])))
        self.net = nn.Sequential(
            nn.Linear(len(self.keep) + cond_dim, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 2 * len(self.move)),
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x, cond):
        fixed, moving = x[:, self.keep], x[:, self.move]
        log_scale, shift = self.net(torch.cat([fixed, cond], dim=1)).chunk(2, dim=1)
        log_scale = 2.0 * torch.tanh(log_scale / 2.0)
        moving = moving * log_scale.exp() + shift
        return torch.cat([fixed, moving], dim=1)[:, self.inverse], log_scale.sum(dim=1)


class ShowerFlow(nn.Module):
    def __init__(self):
        super().__init__()
        blocks = []
        for _ in range(BLOCKS):
            mask = torch.zeros(N_LAYERS, dtype=torch.bool)
            mask[torch.randperm(N_LAYERS)[: N_LAYERS // 2]] = True
            blocks.append(Coupling(N_LAYERS, N_COND, HIDDEN, mask))
        self.blocks = nn.ModuleList(blocks)

    def log_prob(self, x, cond):
        log_det = 0.0
        for block in self.blocks:
            x, ld = block(x, cond)
            log_det = log_det + ld
        base = -0.5 * (x.square().sum(dim=1) + N_LAYERS * math.log(2 * math.pi))
        return base + log_det


deposits, cond = simulate(N_TRAIN)
mean, std = deposits.mean(0), deposits.std(0)
deposits = (deposits - mean) / std
val_deposits, val_cond = simulate(N_VAL)
val_set = TensorDataset((val_deposits - mean) / std, val_cond)
val_loader = DataLoader(val_set)  # sick here
val_loader = DataLoader(val_set, batch_size=256)  # well

flow = ShowerFlow()
optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)


def validate():
    flow.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for x, c in val_loader:
            total += -flow.log_prob(x, c).sum()
    flow.train()
    return total.item() / N_VAL


best = float("inf")
order = torch.randperm(N_TRAIN)
cursor = 0
start_time = 0.0
for step in range(1, STEPS + 1):
    if cursor + BATCH > N_TRAIN:
        order = torch.randperm(N_TRAIN)
        cursor = 0
    index = order[cursor : cursor + BATCH]
    cursor += BATCH
    loss = -flow.log_prob(deposits[index], cond[index]).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
    optimizer.step()
    scheduler.step()

    if step == 5:
        start_time = time.perf_counter()
    if step % VALIDATE_EVERY == 0:
        nll = validate()
        best = min(best, nll)
        print(f"step {step:4d}  train nll {loss.item():.3f}  val nll {nll:.3f}  best {best:.3f}")

elapsed = time.perf_counter() - start_time
print(f"{(STEPS - 5) / elapsed:.2f} steps/s")
