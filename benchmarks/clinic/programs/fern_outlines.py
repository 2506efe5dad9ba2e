# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "fossil ferns"
# ///
# %% [markdown]
# # Fossil fern outlines: a vector-quantised autoencoder
# Frond outlines (x, y along the margin) traced from slabs are compressed to a short string of codes, which
# we later use as characters for the comparison of species.

# %%
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)

POINTS = 256
BATCH = 24
STEPS_PER_EPOCH = 40
EPOCHS = 6
CODES = 256
CODE_DIM = 32

# %% [markdown]
# ## Outlines
# A frond is a tapering axis with pinnae on both sides; lobing, taper, curvature and breakage vary.


# %%
def trace_fronds(count, generator):
    def draw(low, high):
        return low + (high - low) * torch.rand(count, 1, generator=generator)

    t = torch.linspace(0, 1, POINTS).unsqueeze(0)
    along = 1 - (2 * t - 1).abs()
    side = torch.sign(0.5 - t)
    pinnae, lobing = torch.randint(6, 22, (count, 1), generator=generator).float(), draw(0.15, 0.8)
    taper, width = draw(0.5, 1.6), draw(0.15, 0.4)
    envelope = width * (1 - along).clamp(min=0) ** taper * (along + 0.02) ** draw(0.1, 0.4)
    lobes = 1 - lobing * (0.5 + 0.5 * torch.cos(2 * math.pi * pinnae * along + draw(0, 6.28)))
    teeth = 1 + draw(0.0, 0.12) * torch.sin(2 * math.pi * pinnae * draw(3, 6) * along)
    x, y = along, side * envelope * lobes * teeth
    bend = draw(-0.8, 0.8)
    x, y = x * torch.cos(bend * along) - y * torch.sin(bend * along), x * torch.sin(bend * along) + y
    broken = torch.rand(count, 1, generator=generator) < 0.25
    cut = draw(0.6, 0.95)
    x = torch.where(broken, torch.minimum(x, cut), x)
    outline = torch.stack([x, y], dim=1)
    outline = outline - outline.mean(dim=2, keepdim=True)
    return outline + 0.004 * torch.randn(outline.shape, generator=generator)


slabs = torch.Generator().manual_seed(17)
train_outlines = trace_fronds(BATCH * STEPS_PER_EPOCH, slabs)
check_outlines = trace_fronds(BATCH * 5, slabs)
scale = train_outlines.std()
train_outlines, check_outlines = train_outlines / scale, check_outlines / scale
print("outlines:", tuple(train_outlines.shape), tuple(check_outlines.shape))

# %% [markdown]
# ## Model
# Encoder and decoder are one-dimensional residual networks; the margin is closed, so the padding is circular
# at the entrance only.


# %%
class Residual(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(8, channels)
        self.wide = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.point = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.point(F.gelu(self.wide(self.norm(x))))


class Codebook(nn.Module):
    """Nearest-code quantisation with a straight-through gradient."""

    def __init__(self, codes, dim, commitment=0.25):
        super().__init__()
        self.table = nn.Parameter(torch.randn(codes, dim) * 0.5)
        self.commitment = commitment

    @torch.no_grad()
    def nearest(self, flat):
        differences = flat.unsqueeze(1) - self.table.unsqueeze(0)  # sick here
        distances = differences.pow(2).sum(dim=-1)  # sick here
        distances = self.table.pow(2).sum(dim=1) - 2 * flat @ self.table.t()  # well
        return distances.argmin(dim=1)

    def forward(self, z):
        batch, dim, length = z.shape
        flat = z.transpose(1, 2).reshape(-1, dim)
        codes = self.nearest(flat)
        chosen = F.embedding(codes, self.table)
        loss = F.mse_loss(chosen, flat.detach()) + self.commitment * F.mse_loss(flat, chosen.detach())
        quantised = flat + (chosen - flat).detach()
        return quantised.view(batch, length, dim).transpose(1, 2), loss, codes


class FrondCoder(nn.Module):
    def __init__(self, channels=64):
        super().__init__()
        self.entrance = nn.Conv1d(2, channels, 5, padding=2, padding_mode="circular")
        self.encoder = nn.Sequential(
            Residual(channels, 1),
            nn.Conv1d(channels, channels, 4, stride=2, padding=1),
            Residual(channels, 1),
            Residual(channels, 3),
            nn.Conv1d(channels, channels, 4, stride=2, padding=1),
            Residual(channels, 1),
            nn.Conv1d(channels, CODE_DIM, 1),
        )
        self.codebook = Codebook(CODES, CODE_DIM)
        self.decoder = nn.Sequential(
            nn.Conv1d(CODE_DIM, channels, 3, padding=1),
            Residual(channels, 1),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(channels, channels, 3, padding=1),
            Residual(channels, 3),
            nn.Upsample(scale_factor=2),
            nn.Conv1d(channels, channels, 3, padding=1),
            nn.GELU(),
            nn.Conv1d(channels, 2, 5, padding=2),
        )

    def forward(self, outline):
        quantised, loss, codes = self.codebook(self.encoder(self.entrance(outline)))
        return self.decoder(quantised), loss, codes


model = FrondCoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=EPOCHS * STEPS_PER_EPOCH)
print("parameters:", sum(p.numel() for p in model.parameters()))


# %%
@torch.no_grad()
def check():
    model.eval()
    error, used = 0.0, torch.zeros(CODES)
    for outline in check_outlines.split(BATCH):
        redrawn, _, codes = model(outline)
        error += F.mse_loss(redrawn, outline, reduction="sum").item()
        used += torch.bincount(codes, minlength=CODES)
    model.train()
    share = used / used.sum()
    perplexity = torch.exp(-(share * (share + 1e-9).log()).sum())
    return error / check_outlines.numel(), perplexity.item()


# %% [markdown]
# ## Training

# %%
history = []
began = time.perf_counter()
for epoch in range(EPOCHS):
    order = torch.randperm(len(train_outlines))
    for rows in order.split(BATCH):
        outline = train_outlines[rows]
        redrawn, code_loss, _ = model(outline)
        loss = F.smooth_l1_loss(redrawn, outline) + code_loss
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    error, perplexity = check()
    history.append((epoch, error, perplexity))
    print(f"epoch {epoch}: error {error:.4f}, codes in use {perplexity:.0f}")
spent = time.perf_counter() - began

# %%
best = min(history, key=lambda row: row[1])
print(f"best epoch {best[0]} with error {best[1]:.4f}")
rate = EPOCHS * STEPS_PER_EPOCH * BATCH / spent
print(f"{rate:.1f} samples/s")
