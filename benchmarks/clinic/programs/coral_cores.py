# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "coral cores"
# allow = ["PD10.complex-transform"]
# ///
#!/usr/bin/env python
# coding: utf-8

# # Coral cores: learned deblurring of X-radiographs
#
# Slabs cut from *Porites* cores are radiographed; the focal spot and the slab's thickness blur the annual density
# bands. We unroll a proximal gradient scheme and learn the proximal step, following the usual recipe
# (Adler & Oktem 2018; Gilton et al. 2021). The truth comes from a band model with bioerosion holes.

# In[1]:


import math
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1979)
rng = np.random.default_rng(1979)

SIZE = 320
SLABS = 28
BATCH = 4
STAGES = 3
INNER = 8
STEPS = 32


# ## The radiograph's point spread
#
# A Gaussian core from the focal spot and a wide exponential tail from scatter in the slab.

# In[2]:


def point_spread(size, sigma=2.2, tail=9.0, share=0.18):
    axis = np.fft.fftfreq(size) * size
    radius = np.hypot(axis[:, None], axis[None, :])
    core = np.exp(-0.5 * (radius / sigma) ** 2)
    halo = np.exp(-radius / tail)
    return (1 - share) * core / core.sum() + share * halo / halo.sum()


psf = point_spread(SIZE)
print("psf", psf.shape, "sum", round(float(psf.sum()), 4), "peak", round(float(psf.max()), 4))


# ## Synthetic slabs

# In[3]:


def grow_slabs(count, size):
    depth, across = np.mgrid[0:size, 0:size].astype(np.float32)
    slabs = []
    for _ in range(count):
        period = rng.uniform(12, 26)
        bend = rng.uniform(5, 22) * np.sin(2 * np.pi * across / size * rng.uniform(0.4, 1.4) + rng.uniform(0, 6))
        phase = 2 * np.pi * (depth + bend) / period + 0.6 * np.sin(depth / rng.uniform(30, 60))
        slab = 1.25 + 0.22 * np.tanh(2.5 * np.sin(phase))
        slab += 0.05 * np.sin(2 * np.pi * across / rng.uniform(5, 8) + 0.1 * bend)
        for _ in range(rng.integers(2, 7)):
            y, x = rng.uniform(0, size, 2)
            hole = np.hypot((depth - y) / rng.uniform(2, 9), (across - x) / rng.uniform(2, 9)) < 1
            slab[hole] = 0.3
        slabs.append(slab)
    return torch.from_numpy(np.stack(slabs)).float().unsqueeze(1)


def radiograph(truth, psf, noise=0.012):
    spectrum = torch.fft.fft2(truth) * torch.fft.fft2(torch.from_numpy(psf).float())
    return torch.fft.ifft2(spectrum).real + noise * torch.randn(truth.shape)


truth = grow_slabs(SLABS, SIZE)
blurred = radiograph(truth, psf)
print("slabs", tuple(truth.shape), "blur rmse", round((truth - blurred).pow(2).mean().sqrt().item(), 4))


# ## Forward model and the unrolled network

# In[4]:


class Radiography(nn.Module):
    """Circular blur by the point spread, and its adjoint."""

    def __init__(self, psf):
        super().__init__()
        kernel = torch.from_numpy(psf)  # sick here
        kernel = torch.from_numpy(psf).float()  # well
        self.register_buffer("transfer", torch.fft.fft2(kernel))

    def forward(self, x):
        return torch.fft.ifft2(torch.fft.fft2(x) * self.transfer).real

    def adjoint(self, r):
        return torch.fft.ifft2(torch.fft.fft2(r) * self.transfer.conj()).real


class Proximal(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.middle = nn.Conv2d(width, width, 3, padding=1)
        self.leave = nn.Conv2d(width, 1, 3, padding=1)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def forward(self, x):
        h = F.leaky_relu(self.enter(x), 0.1)
        return self.leave(F.leaky_relu(self.middle(h), 0.1))


class UnrolledDeblur(nn.Module):
    def __init__(self, psf, stages=STAGES, inner=INNER):
        super().__init__()
        self.physics = Radiography(psf)
        self.inner = inner
        self.steps = nn.Parameter(torch.full((stages, inner), 0.9))
        self.prox = nn.ModuleList(Proximal() for _ in range(stages))

    def forward(self, y):
        x = y
        for stage, prox in enumerate(self.prox):
            for i in range(self.inner):
                residual = self.physics(x) - y
                x = x - self.steps[stage, i] * self.physics.adjoint(residual)
            x = x + prox(x.float())
        return x


# ## Training

# In[5]:


def charbonnier(a, b, eps=1e-3):
    return torch.sqrt((a - b) ** 2 + eps**2).mean()


def band_contrast(x):
    profile = x.mean(-1)
    return (profile[..., 1:] - profile[..., :-1]).abs().mean((-1, -2))


def psnr(a, b):
    return 10 * math.log10(1.5**2 / (a - b).pow(2).mean().item())


train = DataLoader(TensorDataset(blurred[4:], truth[4:]), batch_size=BATCH, shuffle=True, drop_last=True)
val_y, val_x = blurred[:4], truth[:4]

net = UnrolledDeblur(psf)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

done, epoch, history = 0, 0, []
began = time.time()
while done < STEPS:
    for y, x in train:
        out = net(y)
        loss = charbonnier(out, x) + 0.3 * (band_contrast(out) - band_contrast(x)).abs().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        done += 1
        history.append(loss.item())
        if done == STEPS:
            break
    epoch += 1
    with torch.no_grad():
        score = psnr(net(val_y), val_x)
    print(
        f"epoch {epoch}: loss {np.mean(history[-len(train) :]):.4f}, psnr {score:.2f} dB (input {psnr(val_y, val_x):.2f})"
    )
rate = done * BATCH / (time.time() - began)


# In[6]:


torch.save(net.state_dict(), "coral_deblur.pt")
print("learned steps", [round(v, 2) for v in net.steps.detach().flatten().tolist()])
print(f"{rate:.2f} slabs/s")
