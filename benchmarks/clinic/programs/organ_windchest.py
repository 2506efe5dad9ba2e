# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "pipe organ windchest pressure (notebook export, MLP-Mixer)"
# ///
# %% [markdown]
# # Voicing a pipe organ
# From the pressure in the pallet box while a key goes down (eight taps along the windchest, 96 samples each) we want to
# know how a pipe will speak: delay of speech, depth of the sag, pitch wobble. The voicer then knows which pipes
# to open up.

# %%
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

TAPS, SAMPLES, NOTES = 8, 96, 12288
EPOCHS, BATCH, LR = 14, 256, 2e-3
torch.manual_seed(3)


# %% [markdown]
# ## Wind chest
# A damped resonator for each note, excited by the opening pallet. Taps further from the bellows see it later and weaker.


# %%
def wind_chest(notes, seed):
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 0.25, SAMPLES)[None, None, :]
    where = np.linspace(0.0, 1.0, TAPS)[None, :, None]
    frequency = rng.uniform(9.0, 26.0, (notes, 1, 1))
    damping = rng.uniform(6.0, 30.0, (notes, 1, 1))
    sag = rng.uniform(0.05, 0.35, (notes, 1, 1))
    onset = rng.uniform(0.01, 0.05, (notes, 1, 1)) + 0.03 * where
    since = np.clip(t - onset, 0.0, None)
    swing = np.exp(-damping * since) * np.cos(2 * np.pi * frequency * since)
    trace = 1.0 - sag * (1 - 0.4 * where) * (since > 0) * (1.0 - swing)
    trace += rng.normal(0.0, 0.01, trace.shape)
    delay = onset[:, 0, 0] * 40 + 12.0 / frequency[:, 0, 0]
    depth = sag[:, 0, 0] * 8
    wobble = sag[:, 0, 0] * frequency[:, 0, 0] / np.sqrt(damping[:, 0, 0])
    return trace, np.stack([delay, depth, wobble], axis=1)


class Keystrokes:
    """Normalised pressure traces and voicing targets, served as shuffled batches."""

    def __init__(self, notes, seed, like=None):
        trace, target = wind_chest(notes, seed)
        if like is None:
            self.centre, self.spread = trace.mean((0, 2), keepdims=True), trace.std((0, 2), keepdims=True)
            self.aim, self.scale = target.mean(0), target.std(0)
        else:
            self.centre, self.spread, self.aim, self.scale = like.centre, like.spread, like.aim, like.scale
        self.trace = torch.from_numpy((trace - self.centre) / self.spread)  # sick here
        self.target = torch.from_numpy((target - self.aim) / self.scale)  # sick here
        self.trace = torch.from_numpy((trace - self.centre) / self.spread).float()  # well
        self.target = torch.from_numpy((target - self.aim) / self.scale).float()  # well

    def __len__(self):
        return len(self.trace) // BATCH

    def batches(self, shuffle=True):
        order = torch.randperm(len(self.trace)) if shuffle else torch.arange(len(self.trace))
        for rows in order[: len(self) * BATCH].split(BATCH):
            yield self.trace[rows], self.target[rows]


train = Keystrokes(NOTES, seed=0)
check = Keystrokes(1024, seed=1, like=train)


# %% [markdown]
# ## Model
# Patches of every tap become tokens; mixing along tokens and along channels in turn.


# %%
class Mix(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_a, self.norm_b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(nn.Linear(tokens, tokens // 4), nn.SiLU(), nn.Linear(tokens // 4, tokens))
        self.across = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.along(self.norm_a(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.norm_b(x))


class Voicer(nn.Module):
    def __init__(self, patch=12, width=32, depth=3):
        super().__init__()
        self.patch = patch
        tokens = TAPS * SAMPLES // patch
        self.embed = nn.Linear(patch, width)
        self.place = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.mixers = nn.Sequential(*[Mix(tokens, width) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, trace):
        tokens = trace.unflatten(2, (-1, self.patch)).flatten(1, 2)
        x = self.mixers(self.embed(tokens) + self.place)
        return self.head(self.norm(x).mean(1))


def build(data):
    net = Voicer().to(dtype=data.trace.dtype)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=1e-3, fused=True)
    steps = EPOCHS * len(data)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, s / 40) * 0.5 * (1 + math.cos(math.pi * s / steps))
    )
    return net, optimizer, schedule


# %%
def score(net):
    net.eval()
    with torch.inference_mode():
        wrong = torch.stack([(net(x) - y).square().mean(0) for x, y in check.batches(shuffle=False)]).mean(0)
    net.train()
    return (1 - wrong).tolist()


# %% [markdown]
# ## Training

# %%
net, optimizer, schedule = build(train)
history = []
start = time.perf_counter()
for epoch in range(EPOCHS):
    losses = []
    for trace, target in train.batches():
        loss = F.smooth_l1_loss(net(trace), target, beta=0.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
    history.append(torch.stack(losses).mean().item())
    delay, depth, wobble = score(net)
    print(
        f"{epoch:2d}  loss {history[-1]:.4f}   R2 delay {delay:.3f}  sag {depth:.3f}  wobble {wobble:.3f}"
        f"   {time.perf_counter() - start:.1f} s"
    )

# %%
print(f"total training seconds: {time.perf_counter() - start:.1f}")
