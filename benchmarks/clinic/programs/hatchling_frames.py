# /// clinic
# expect = ["PD20.logging"]
# stratum = "twins"
# domain = "brine shrimp"
# ///
# Brine shrimp hatchery: a VAE for frames of nauplii under the stereo microscope.
# Exported from hatchling_frames.ipynb, made to run as a script on the lab machine.

# %% imports
import math
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(11)
rng = np.random.default_rng(11)

# %% settings
SIDE = 48
FRAMES, HELD_OUT = 1152, 256
BATCH = 64
EPOCHS = 20
LATENT = 12
LR = 1.5e-3
BETA_MAX, WARM_UP = 0.6, 8
OUT = Path("figures")
OUT.mkdir(exist_ok=True)


# %% frames: an oval body, two beating antennae, the single eye, grit in the water
def draw_frames(count):
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j].astype(np.float32)
    x, y = x[None], y[None]

    def column(low, high):
        return rng.uniform(low, high, (count, 1, 1)).astype(np.float32)

    turn, size = column(0, 2 * math.pi), column(0.22, 0.36)
    cx, cy = column(-0.3, 0.3), column(-0.3, 0.3)
    u = (x - cx) * np.cos(turn) + (y - cy) * np.sin(turn)
    v = -(x - cx) * np.sin(turn) + (y - cy) * np.cos(turn)
    frame = 0.75 * np.exp(-(((u / (1.6 * size)) ** 2 + (v / (0.75 * size)) ** 2) ** 2))
    beat = column(-0.7, 0.7)
    for side in (-1, 1):
        au = u - 0.8 * size
        av = v - side * (0.5 * size + np.tan(0.9 + 0.4 * beat) * np.abs(au) * 0.5)
        frame += 0.45 * np.exp(-((av / 0.05) ** 2) - (au / (0.8 * size)) ** 2)
    frame -= 0.6 * np.exp(-(((u - 1.1 * size) ** 2 + v**2) / 0.004))
    frame += 0.08 * rng.standard_normal((count, SIDE, SIDE), dtype=np.float32)
    return torch.from_numpy(frame.clip(0, 1).astype(np.float32)).unsqueeze(1)


frames = draw_frames(FRAMES)
held_out = draw_frames(HELD_OUT)
print("frames", tuple(frames.shape), "held out", tuple(held_out.shape))


# %% model
class Encoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(4 * width * (SIDE // 8) ** 2, 2 * LATENT)

    def forward(self, x):
        return self.head(self.convs(x)).chunk(2, dim=1)


class Decoder(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Linear(LATENT, 4 * width * (SIDE // 8) ** 2)
        self.convs = nn.Sequential(
            nn.Unflatten(1, (4 * width, SIDE // 8, SIDE // 8)),
            nn.SiLU(),
            nn.ConvTranspose2d(4 * width, 2 * width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(2 * width, width, 4, stride=2, padding=1),
            nn.SiLU(),
            nn.ConvTranspose2d(width, 1, 4, stride=2, padding=1),
        )

    def forward(self, z):
        return self.convs(self.enter(z))


encoder, decoder = Encoder(), Decoder()
parameters = [*encoder.parameters(), *decoder.parameters()]
optimizer = torch.optim.Adam(parameters, lr=LR)


def elbo(x, beta):
    mean, logvar = encoder(x)
    z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
    logits = decoder(z)
    recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
    return recon + beta * kl, recon, kl, logits


# %% the picture that is looked at over coffee
def montage(batch, columns=8):
    rows = len(batch) // columns
    tiles = batch[: rows * columns, 0].reshape(rows, columns, SIDE, SIDE)
    return tiles.permute(0, 2, 1, 3).reshape(rows * SIDE, columns * SIDE).numpy()


fig, axes = plt.subplots(2, 2, figsize=(9, 6))
history = {"step": [], "held out": []}


@torch.no_grad()
def draw_progress(epoch):
    (curve, given), (made, latent) = axes
    for ax in axes.flat:  # well
        ax.clear()  # well
    shown = held_out[:32]
    mean, _ = encoder(held_out)
    ends = np.arange(1, epoch + 2) * (FRAMES // BATCH)
    curve.plot(history["step"], color="tab:blue", lw=0.7)  # here
    curve.plot(ends, history["held out"], color="tab:orange", marker="o", ms=3)
    given.imshow(montage(shown), cmap="gray", vmin=0, vmax=1)
    made.imshow(montage(torch.sigmoid(decoder(mean[:32]))), cmap="gray", vmin=0, vmax=1)
    latent.hist(mean.numpy(), bins=16, range=(-3, 3))  # here
    curve.set_title(f"- ELBO after epoch {epoch} (orange: held out)")
    for ax, title in ((given, "frames"), (made, "reconstructed"), (latent, "latent means, by dimension")):
        ax.set_title(title)
    fig.tight_layout()
    fig.savefig(OUT / "progress.png", dpi=100)  # here


# %% training
seen = 0
began = time.perf_counter()
for epoch in range(EPOCHS):
    encoder.train(), decoder.train()
    beta = BETA_MAX * min(1.0, (epoch + 1) / WARM_UP)
    for rows in torch.randperm(FRAMES).split(BATCH):
        x = frames[rows]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
        loss, recon, kl, _ = elbo(x, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 50.0)
        optimizer.step()
        history["step"].append(loss.item())
        seen += len(x)

    encoder.eval(), decoder.eval()
    with torch.no_grad():
        total = sum(elbo(part, BETA_MAX)[0].item() * len(part) for part in held_out.split(BATCH)) / HELD_OUT
    history["held out"].append(total)
    draw_progress(epoch)
    print(f"epoch {epoch:2d}  recon {recon.item():7.1f}  kl {kl.item():5.2f}  held out {total:7.1f}")

rate = seen / (time.perf_counter() - began)

# %% keep
torch.save({"encoder": encoder.state_dict(), "decoder": decoder.state_dict(), "history": history}, OUT / "vae.pt")
print(f"{rate:.1f} frames/s")
