# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "bookbinding threads"
# ///
# %% [markdown]
# # Kettle stitch
# A small diffusion model for tension profiles of sewing threads, measured along the spine from kettle stitch to
# kettle stitch. We draw profiles for a given material and ply to see which breaks the conservators should expect.

# %%
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SEED = 1543
STATIONS = 160
MATERIALS = ["linen", "hemp", "silk", "cotton", "sinew"]
TRAIN, HELD = 9600, 960
BATCH = 192
EPOCHS = 6
T = 400
WIDTH, BLOCKS = 384, 4

torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)


# %% [markdown]
# ## Profiles
# Each passes the sewing stations with a slow decay (wax wears off), a sawtooth at each support and slubs in the
# yarn, larger for hemp and sinew.


# %%
def measure(count):
    material = rng.integers(len(MATERIALS), size=count)
    ply = rng.integers(2, 6, size=count)
    x = np.linspace(0.0, 1.0, STATIONS)[None, :]
    decay = np.array([0.5, 0.8, 0.2, 0.6, 1.1])[material][:, None] * rng.uniform(0.7, 1.3, (count, 1))
    supports = rng.integers(3, 8, size=(count, 1))
    phase = rng.uniform(0, 0.2, (count, 1))
    saw = np.mod(x * supports + phase, 1.0) * rng.uniform(0.1, 0.5, (count, 1))
    twist = 0.12 * np.sin(2 * np.pi * x * (6 * ply[:, None]) + rng.uniform(0, 6.28, (count, 1)))
    slub_size = np.array([0.05, 0.12, 0.02, 0.05, 0.15])[material][:, None]
    slubs = rng.standard_normal((count, STATIONS)) * slub_size
    slubs = (slubs + np.roll(slubs, 1, 1) + np.roll(slubs, 2, 1)) / math.sqrt(3)
    tension = 1.5 * np.exp(-decay * x) + saw + twist + slubs
    return tension, material, ply - 2


raw, material, ply = measure(TRAIN + HELD)
raw = (raw - raw.mean()) / raw.std()
print("profiles", raw.shape, "range", raw.min().round(2), raw.max().round(2))

# %%
profiles = torch.from_numpy(raw)  # sick here
profiles = torch.from_numpy(raw).float()  # well
material = torch.from_numpy(material)
ply = torch.from_numpy(ply)
train_x, held_x = profiles[:TRAIN], profiles[TRAIN:]

betas = torch.linspace(1e-4, 0.03, T, dtype=profiles.dtype)
alpha_bar = torch.cumprod(1 - betas, 0)


def spoil(x0, t, eps):
    a = alpha_bar[t].unsqueeze(1)
    return a.sqrt() * x0 + (1 - a).sqrt() * eps


# %% [markdown]
# ## Network
# Residual MLP over the whole profile; time, material and ply are added to the hidden state in each block.


# %%
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.cond = nn.Linear(width, width)

    def forward(self, h, c):
        return h + self.down(F.silu(self.up(self.norm(h + self.cond(c)))))


class Denoiser(nn.Module):
    def __init__(self, stations, width, blocks, freqs=64):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(1000.0), freqs)))
        self.time = nn.Sequential(nn.Linear(2 * freqs, width), nn.SiLU(), nn.Linear(width, width))
        self.material = nn.Embedding(len(MATERIALS), width)
        self.ply = nn.Embedding(4, width)
        self.inp = nn.Linear(stations, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, stations))

    def forward(self, x, t, material, ply):
        angle = (t.to(x.dtype) / T).unsqueeze(1) * self.freqs
        c = self.time(torch.cat([angle.sin(), angle.cos()], 1)) + self.material(material) + self.ply(ply)
        h = self.inp(x)
        for block in self.blocks:
            h = block(h, c)
        return self.out(h)


net = Denoiser(STATIONS, WIDTH, BLOCKS)
net = net.double()  # sick here
opt = torch.optim.Adam(net.parameters(), lr=5e-4, betas=(0.9, 0.99))
steps_per_epoch = TRAIN // BATCH
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * steps_per_epoch)
print(sum(p.numel() for p in net.parameters()) / 1e6, "M parameters")


# %%
@torch.no_grad()
def held_out_loss(repeats=2):
    net.eval()
    g = torch.Generator().manual_seed(7)
    losses = []
    for _ in range(repeats):
        for i in range(0, HELD, BATCH):
            x0 = held_x[i : i + BATCH]
            t = torch.randint(0, T, (len(x0),), generator=g)
            eps = torch.randn(x0.shape, generator=g, dtype=x0.dtype)
            where = slice(TRAIN + i, TRAIN + i + len(x0))
            losses.append(F.mse_loss(net(spoil(x0, t, eps), t, material[where], ply[where]), eps))
    net.train()
    return torch.stack(losses).mean().item()


@torch.no_grad()
def draw(kind, plies, count=16, steps=25):
    net.eval()
    x = torch.randn(count, STATIONS, dtype=profiles.dtype)
    m, p = torch.full((count,), kind), torch.full((count,), plies)
    times = torch.linspace(T - 1, 0, steps).long()
    for k, t in enumerate(times):
        eps = net(x, t.expand(count), m, p)
        x0 = ((x - (1 - alpha_bar[t]).sqrt() * eps) / alpha_bar[t].sqrt()).clamp(-4, 4)
        if k + 1 < steps:
            nxt = alpha_bar[times[k + 1]]
            x = nxt.sqrt() * x0 + (1 - nxt).sqrt() * eps
    net.train()
    return x0


# %%
history = []
began = time.perf_counter()
for epoch in range(EPOCHS):
    order = torch.randperm(TRAIN)
    running = 0.0
    for i in range(steps_per_epoch):
        pick = order[i * BATCH : (i + 1) * BATCH]
        x0 = train_x[pick]
        t = torch.randint(0, T, (BATCH,))
        eps = torch.randn_like(x0)
        loss = F.mse_loss(net(spoil(x0, t, eps), t, material[pick], ply[pick]), eps)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        running += loss.item()
    history.append((running / steps_per_epoch, held_out_loss()))
    print(f"epoch {epoch + 1}: train {history[-1][0]:.4f} held out {history[-1][1]:.4f}")
elapsed = time.perf_counter() - began

# %%
for kind, name in enumerate(MATERIALS):
    lots = draw(kind, 1)
    print(f"{name:7s} mean {lots.mean().item():+.2f} weakest point {lots.min(1).values.mean().item():+.2f}")

# %%
rate = EPOCHS * steps_per_epoch * BATCH / elapsed
print(f"{rate:.1f} profiles/s")
