# /// clinic
# expect = ["PD15.growing-hooks", "PD15.repeated-hooks"]
# stratum = "twins"
# domain = "herring gull egg pigments"
# ///
# %% [markdown]
# # Eggshells of the herring gull
# Denoising diffusion on 32 x 32 patches of shell, conditioned on the two pigments (biliverdin for the ground colour,
# protoporphyrin for the spots) and on laying order. The samples serve as a null model for the egg recognition study.

# %%
import json
import math
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)
rng = np.random.default_rng(31)

EGGS = 216
PATCHES = 2
SIZE = 32
T = 200
EPOCHS = 28
BATCH = 24
BASE = 16

# %% [markdown]
# ## Patches
# Ground colour in ultraviolet, green and red; spots are thresholded smooth noise at two scales.


# %%
def shell(biliverdin, protoporphyrin, order):
    ground = np.array([0.18, 0.55, 0.50]) + biliverdin * np.array([0.02, 0.06, -0.10])
    coarse = ndimage.gaussian_filter(rng.standard_normal((SIZE, SIZE)), 2.2 + 0.2 * order)
    fine = ndimage.gaussian_filter(rng.standard_normal((SIZE, SIZE)), 0.9)
    coarse, fine = coarse / coarse.std(), fine / fine.std()
    spots = 1 / (1 + np.exp(-6 * (coarse - 1.4 + 0.5 * protoporphyrin)))
    specks = 1 / (1 + np.exp(-6 * (fine - 2.0 + 0.3 * protoporphyrin)))
    cover = np.clip(spots + 0.6 * specks, 0, 1)[None]
    spot_colour = np.array([0.06, 0.16, 0.24])
    image = ground[:, None, None] * (1 - cover) + spot_colour[:, None, None] * cover
    return image * 2 - 0.7 + rng.normal(0, 0.02, image.shape)


images, pigments = [], []
for egg in range(EGGS):
    b, p, order = rng.normal(0, 1), rng.normal(0, 1), egg % 3
    for _ in range(PATCHES):
        images.append(shell(b, p, order))
        pigments.append([b, p, order - 1.0])
images = torch.tensor(np.stack(images), dtype=torch.float32)
pigments = torch.tensor(pigments, dtype=torch.float32)
print("patches", tuple(images.shape), "mean", images.mean().item())

split = len(images) - 96
loader = DataLoader(TensorDataset(images[:split], pigments[:split]), BATCH, shuffle=True, drop_last=True)
held_images, held_pigments = images[split:], pigments[split:]

# %% [markdown]
# ## Network


# %%
class Block(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(1 if cin < 8 else 8, cin), nn.GroupNorm(8, cout)
        self.conv1, self.conv2 = nn.Conv2d(cin, cout, 3, padding=1), nn.Conv2d(cout, cout, 3, padding=1)
        self.film = nn.Linear(emb, 2 * cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, emb):
        h = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.film(emb)[:, :, None, None].chunk(2, dim=1)
        h = self.norm2(h) * (1 + scale) + shift
        return self.skip(x) + self.conv2(F.silu(h))


class ShellUNet(nn.Module):
    def __init__(self, base, emb=64):
        super().__init__()
        self.register_buffer("freqs", torch.exp(torch.linspace(0, math.log(1000), emb // 2)))
        self.embed = nn.Sequential(nn.Linear(emb + 3, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.stem = nn.Conv2d(3, base, 3, padding=1)
        self.down1, self.down2 = Block(base, base, emb), Block(base, 2 * base, emb)
        self.middle = Block(2 * base, 2 * base, emb)
        self.up2, self.up1 = Block(4 * base, base, emb), Block(2 * base, base, emb)
        self.out = nn.Conv2d(base, 3, 3, padding=1)

    def forward(self, x, t, pigment):
        phase = t[:, None] * self.freqs
        emb = self.embed(torch.cat([phase.sin(), phase.cos(), pigment], dim=1))
        h1 = self.down1(self.stem(x), emb)
        h2 = self.down2(F.avg_pool2d(h1, 2), emb)
        h = self.middle(F.avg_pool2d(h2, 2), emb)
        h = self.up2(torch.cat([F.interpolate(h, scale_factor=2), h2], dim=1), emb)
        h = self.up1(torch.cat([F.interpolate(h, scale_factor=2), h1], dim=1), emb)
        return self.out(F.silu(h))


def watch(net):
    """Keep mean, spread and share of silent units of every block, to see early when one of them dies."""
    kept = defaultdict(list)

    def note(name):
        def hook(module, inputs, output):
            if module.training:
                o = output.detach()
                kept[name].append((o.mean().item(), o.std().item(), (o.abs() < 1e-3).float().mean().item()))

        return hook

    for name, module in net.named_modules():
        if isinstance(module, Block):
            module.register_forward_hook(note(name))
    return kept


# %% [markdown]
# ## Schedule and loss (cosine, epsilon)

# %%
s = torch.linspace(0, 1, T + 1)
alpha_bar = (torch.cos((s + 0.008) / 1.008 * math.pi / 2) ** 2).clamp(1e-4, 0.9999)[1:]

net = ShellUNet(BASE)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-4)
print("parameters", sum(p.numel() for p in net.parameters()))


def diffusion_loss(x, pigment, t):
    a = alpha_bar[t][:, None, None, None]
    eps = torch.randn_like(x)
    return F.mse_loss(net(a.sqrt() * x + (1 - a).sqrt() * eps, t / T, pigment), eps)


# %% [markdown]
# ## Training

# %%
log = []
steps = 0
kept = watch(net)  # well
began = time.perf_counter()
for epoch in range(EPOCHS):
    net.train()
    kept = watch(net)  # sick here
    kept.clear()  # well
    running = 0.0
    for x, pigment in loader:
        flip = x.flip(-1) if torch.rand(()) < 0.5 else x
        loss = diffusion_loss(flip, pigment, torch.randint(0, T, (len(x),)))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        running += loss.item()
        steps += 1
    net.eval()
    with torch.no_grad():
        held = diffusion_loss(held_images, held_pigments, torch.arange(96) * T // 96).item()
    blocks = {name: np.mean(rows, axis=0).round(4).tolist() for name, rows in kept.items()}
    log.append({"epoch": epoch, "train": running / len(loader), "held": held, "blocks": blocks})
    print(f"epoch {epoch:2d} train {log[-1]['train']:.4f} held {held:.4f} middle {blocks['middle']}")
took = time.perf_counter() - began

# %%
with open("gull_eggs_log.json", "w") as f:
    json.dump(log, f, indent=1)
print(f"{steps * BATCH / took:.1f} patches/s")
