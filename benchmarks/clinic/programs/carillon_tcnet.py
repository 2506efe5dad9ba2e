# /// clinic
# expect = ["PD02.long-axis-first"]
# stratum = "twins"
# domain = "identifying carillon bells by their strike"
# ///
# %% [markdown]
# # Which bell of the carillon was struck?
# 24 bells, one-second recordings, a small temporal-convolution residual net
# over 40 spectral bands (after the keyword-spotting nets of 2019).

# %%
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(11)

RATE, SECONDS, BELLS, BANDS = 8000, 1.0, 24, 40
N_TRAIN, N_TEST = 1536, 384
BATCH, EPOCHS = 64, 16

# %% [markdown]
# ## Recordings
# Partials of a minor-third bell: hum, prime, tierce, quint, nominal and two higher ones.

# %%
RATIOS = torch.tensor([0.5, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0])
DECAYS = torch.tensor([1.1, 2.0, 2.6, 3.5, 3.0, 5.0, 6.5])


def ring(bell, generator):
    """Waveforms for a vector of bell numbers, with detuning, strike delay, wind and room."""
    n = bell.numel()
    t = torch.arange(int(RATE * SECONDS)) / RATE
    prime = 220.0 * 2 ** (bell.float() / 12)
    detune = 1 + 0.012 * torch.randn(n, generator=generator)
    delay = 0.25 * torch.rand(n, 1, generator=generator)
    since = (t - delay).clamp(min=0)
    sounding = (t > delay).float()
    wave = torch.zeros(n, t.numel())
    for ratio, decay in zip(RATIOS, DECAYS):
        loud = 0.3 + torch.rand(n, 1, generator=generator)
        pitch = (prime * detune * ratio)[:, None]
        wave += loud * torch.exp(-decay * since) * torch.sin(2 * math.pi * pitch * since)
    neighbour = 220.0 * 2 ** (torch.randint(0, BELLS, (n, 1), generator=generator) / 12)
    wave += 0.6 * torch.exp(-1.5 * t) * torch.sin(2 * math.pi * neighbour * t)
    return wave * sounding + 0.5 * torch.randn(n, t.numel(), generator=generator)


def bands(wave):
    """Log energies, (n, BANDS, frames)."""
    spectrum = torch.stft(wave, 512, hop_length=32, window=torch.hann_window(512), return_complex=True)
    power = spectrum.abs().square()[:, 6:246]
    return F.avg_pool1d(power.transpose(1, 2), 240 // BANDS).transpose(1, 2).add(1e-3).log()


def record(n, seed):
    generator = torch.Generator().manual_seed(seed)
    bell = torch.randint(0, BELLS, (n,), generator=generator)
    parts = [bands(ring(part, generator)) for part in bell.split(96)]
    return torch.cat(parts).contiguous(), bell


x_train, y_train = record(N_TRAIN, 1)
x_test, y_test = record(N_TEST, 2)
mean, std = x_train.mean((0, 2), keepdim=True), x_train.std((0, 2), keepdim=True)
x_train, x_test = (x_train - mean) / std, (x_test - mean) / std
print("recordings", tuple(x_train.shape))

# %% [markdown]
# ## The net


# %%
def along_time(cin, cout, k, stride=1):
    return nn.Conv2d(cin, cout, (k, 1), stride=(stride, 1), padding=(k // 2, 0), bias=False)  # sick here
    return nn.Conv2d(cin, cout, (1, k), stride=(1, stride), padding=(0, k // 2), bias=False)  # well


class Block(nn.Module):
    def __init__(self, cin, cout, k=9, stride=1):
        super().__init__()
        self.a, self.na = along_time(cin, cout, k, stride), nn.BatchNorm2d(cout)
        self.b, self.nb = along_time(cout, cout, k), nn.BatchNorm2d(cout)
        self.skip = None
        if cin != cout or stride != 1:
            self.skip = nn.Sequential(along_time(cin, cout, 1, stride), nn.BatchNorm2d(cout))

    def forward(self, x):
        y = F.relu(self.na(self.a(x)))
        y = self.nb(self.b(y))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class BellNet(nn.Module):
    def __init__(self, widths=(32, 48, 64, 64)):
        super().__init__()
        self.stem = along_time(BANDS, widths[0], 3)
        self.blocks = nn.Sequential(
            Block(widths[0], widths[1]),
            Block(widths[1], widths[2], stride=2),
            Block(widths[2], widths[3], stride=2),
        )
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(widths[3], BELLS)

    def forward(self, x):
        x = x.unsqueeze(-1)  # sick here
        x = x.unsqueeze(2)  # well
        x = self.blocks(self.stem(x))
        return self.out(self.drop(x.mean((2, 3))))


def vary(x):
    """One random time offset per batch, a gain per recording."""
    shift = int(torch.randint(-9, 10, ()))
    return torch.roll(x, shift, dims=2) + 0.2 * torch.randn(x.shape[0], 1, 1)


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    right = sum((net(xb).argmax(1) == yb).sum().item() for xb, yb in zip(x.split(128), y.split(128)))
    net.train()
    return right / len(y)


# %% [markdown]
# ## Training

# %%
net = BellNet()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
steps = EPOCHS * (N_TRAIN // BATCH)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)

started = time.perf_counter()
for epoch in range(EPOCHS):
    order = torch.randperm(N_TRAIN)
    running = torch.zeros(())
    for pick in order.split(BATCH):
        loss = F.cross_entropy(net(vary(x_train[pick])), y_train[pick], label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.detach()
    if epoch % 4 == 3 or epoch == EPOCHS - 1:
        print(
            f"epoch {epoch + 1:3d}  loss {running.item() * BATCH / N_TRAIN:.3f}  "
            f"test accuracy {accuracy(net, x_test, y_test):.3f}"
        )

print(f"training seconds {time.perf_counter() - started:.2f}")
