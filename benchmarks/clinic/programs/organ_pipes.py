# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "church organ pipes"
# ///
# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Voicing of organ pipes: a conditional VAE over steady-state spectra
#
# The workshop measures the sound of each flue pipe after voicing (log spectrum on a pitch-relative frequency axis).
# We want a small latent space of *voicings* that is independent of the stop a pipe belongs to and of its place on the
# keyboard, so that a restorer can see which pipes of a rank fall out of character.

# %%
import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter1d
from torch import nn

torch.manual_seed(1749)
rng = np.random.default_rng(1749)

# %% [markdown]
# ## The pipes
# Stops differ in how fast the partials fall off, in the weight of even partials (stopped pipes have almost none) and in
# wind noise.

# %%
STOPS = {
    # name: (fall-off in dB per octave, even partials in dB, wind noise in dB, spread of the cut-up)
    "Principal 8": (7.0, -2.0, -52.0, 0.20),
    "Gedackt 8": (11.0, -26.0, -46.0, 0.25),
    "Viola da Gamba 8": (3.5, -1.0, -40.0, 0.30),
    "Traversflote 4": (13.0, -6.0, -44.0, 0.22),
    "Quintade 8": (6.0, -22.0, -45.0, 0.28),
    "Octave 4": (6.5, -2.0, -50.0, 0.20),
    "Spitzflote 2": (9.0, -9.0, -48.0, 0.24),
    "Salicional 16": (4.5, -3.0, -42.0, 0.27),
}
BINS = 576
PARTIALS = 16
N_PIPES = 12_288


def measure_pipes(n):
    stop = rng.integers(0, len(STOPS), size=n)
    key = rng.integers(0, 54, size=n)
    table = np.array(list(STOPS.values()))
    fall, even, noise, spread = table[stop].T
    cut_up = 1 + spread * rng.standard_normal(n)
    age = rng.gamma(2.0, 0.5, size=n)

    axis = np.linspace(0.5, 17.5, BINS)
    spectra = np.zeros((n, BINS))
    for k in range(1, PARTIALS + 1):
        level = -fall * cut_up * math.log2(k) + (even if k % 2 == 0 else 0.0) - 0.8 * age * (k > 5)
        level = level + 1.5 * rng.standard_normal(n) - 0.04 * key * (k - 1)
        centre = k * (1 + 2e-4 * k * k * cut_up)
        near = np.flatnonzero(np.abs(axis - k) < 1.6)
        shape = np.exp(-0.5 * ((axis[near][None] - centre[:, None]) / 0.09) ** 2)
        spectra[:, near] += 10 ** (level[:, None] / 20) * shape
    hiss = np.abs(gaussian_filter1d(rng.standard_normal((n, BINS)), 2, axis=1))
    wind = 10 ** ((noise + 6 * age)[:, None] / 20) * hiss
    decibel = 20 * np.log10(spectra + wind + 1e-4)
    return (decibel + 80) / 80, stop, key / 53


spectra, stop, key = measure_pipes(N_PIPES)
print(spectra.shape, spectra.min().round(3), spectra.max().round(3))

# %%
octave = np.sin(2 * np.pi * key * 53 / 12)
conditions = np.concatenate([np.eye(len(STOPS))[stop], key[:, None], octave[:, None]], axis=1)

X = torch.from_numpy(spectra)  # sick here
C = torch.from_numpy(conditions)  # sick
X = torch.from_numpy(spectra).float()  # well
C = torch.from_numpy(conditions).float()  # well

order = torch.randperm(N_PIPES)
test_idx, train_idx = order[:1024], order[1024:]

# %% [markdown]
# ## The model


# %%
class PipeVAE(nn.Module):
    def __init__(self, bins=BINS, n_cond=10, width=640, latent=12):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(bins + n_cond, width),
            nn.LeakyReLU(0.1),
            nn.Linear(width, width // 2),
            nn.LeakyReLU(0.1),
        )
        self.mean = nn.Linear(width // 2, latent)
        self.log_var = nn.Linear(width // 2, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent + n_cond, width // 2),
            nn.LeakyReLU(0.1),
            nn.Linear(width // 2, width),
            nn.LeakyReLU(0.1),
            nn.Linear(width, bins),
        )

    def forward(self, x, c):
        h = self.encoder(torch.cat([x, c], dim=1))
        mean, log_var = self.mean(h), self.log_var(h).clamp(-8, 4)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(torch.cat([z, c], dim=1)), mean, log_var


def elbo(x, out, mean, log_var, beta):
    reconstruction = F.mse_loss(out, x, reduction="sum") / len(x) / 0.02
    kl = -0.5 * (1 + log_var - mean.square() - log_var.exp()).sum(1).mean()
    return reconstruction + beta * kl, reconstruction, kl


# %%
model = PipeVAE()
model = model.double()  # sick here
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=18)

# %% [markdown]
# ## Training

# %%
EPOCHS, BATCH = 18, 256
history = []
steps = len(train_idx) // BATCH
t0 = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    beta = min(1.0, (epoch + 1) / 8)
    shuffled = train_idx[torch.randperm(len(train_idx))]
    sums = torch.zeros(3, dtype=X.dtype)
    for i in range(steps):
        idx = shuffled[i * BATCH : (i + 1) * BATCH]
        x, c = X[idx], C[idx]
        out, mean, log_var = model(x, c)
        loss, reconstruction, kl = elbo(x, out, mean, log_var, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        sums += torch.stack([loss, reconstruction, kl]).detach()
    scheduler.step()

    model.eval()
    with torch.no_grad():
        out, mean, log_var = model(X[test_idx], C[test_idx])
        _, test_reconstruction, test_kl = elbo(X[test_idx], out, mean, log_var, 1.0)
    history.append((*(sums / steps).tolist(), test_reconstruction.item(), test_kl.item()))
    print("epoch {:2d}  loss {:8.3f}  rec {:8.3f}  kl {:6.3f}  |  rec {:8.3f}  kl {:6.3f}".format(epoch, *history[-1]))
elapsed = time.perf_counter() - t0

# %% [markdown]
# ## Pipes that fall out of character
# Distance of each pipe's voicing from the mean of its stop, in units of the stop's own spread.

# %%
with torch.no_grad():
    _, voicing, _ = model(X, C)
stop = torch.from_numpy(stop)
for s, name in enumerate(STOPS):
    rank = voicing[stop == s]
    distance = ((rank - rank.mean(0)) / rank.std(0)).norm(dim=1)
    print(f"{name:18s} {len(rank):5d} pipes, {int((distance > 5.5).sum()):3d} to look at")

# %%
rate = EPOCHS * steps * BATCH / elapsed
print(f"{rate:.1f} pipes/s")
