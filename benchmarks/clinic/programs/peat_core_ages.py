# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "multispectral scans of peat cores"
# ///
# %% [markdown]
# # Peat cores: from a multispectral core scan to age, water table and charcoal
# Every core is scanned every few millimetres in eight bands.  The net sees the whole scan and gives
# three numbers: basal age (ka), mean water table depth (cm) and charcoal influx (arbitrary units).

# %%
import math
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 11
BANDS, DEPTHS, PATCH = 8, 512, 8
N_TRAIN, N_TEST = 1536, 512
EPOCHS = 26
torch.manual_seed(SEED)


# %%
def simulate_cores(n, rng):
    """Scans [n, BANDS, DEPTHS] and targets [n, 3] of synthetic raised-bog cores."""
    depth = np.linspace(0.0, 1.0, DEPTHS)
    age = rng.uniform(1.5, 9.0, n)
    wetness = rng.uniform(2.0, 30.0, n)
    fires = rng.gamma(2.0, 1.5, n)

    # humification rises with age, the surface layer (acrotelm) follows the water table
    humification = 1.0 - np.exp(-depth[None] * age[:, None] / 3.0)
    acrotelm = 1.0 / (1.0 + np.exp((depth[None] - wetness[:, None] / 60.0) * 40.0))
    cycles = np.sin(2 * np.pi * depth[None] * age[:, None] * 2.3 + rng.uniform(0, 6.28, (n, 1)))

    # charcoal bands: narrow dark peaks, their number is Poisson in the fire activity
    charcoal = np.zeros((n, DEPTHS))
    counts = rng.poisson(fires * 2.0)
    rows = np.repeat(np.arange(n), counts)
    np.add.at(charcoal, (rows, rng.integers(0, DEPTHS, rows.size)), rng.uniform(0.5, 1.5, rows.size))
    kernel = np.exp(-0.5 * (np.arange(-6, 7) / 2.0) ** 2)
    spectrum = np.fft.rfft(charcoal, axis=1) * np.fft.rfft(kernel, DEPTHS)[None]
    charcoal = np.fft.irfft(spectrum, DEPTHS, axis=1)

    mixing = rng.normal(size=(BANDS, 4)) * 0.2 + np.eye(BANDS, 4) + 0.3
    layers = np.stack([humification, acrotelm, 0.3 * cycles, charcoal], axis=1)
    scans = mixing @ layers
    scans += rng.normal(scale=0.15, size=scans.shape)
    return scans, np.stack([age, wetness, fires], axis=1)


rng = np.random.default_rng(SEED)
scans, targets = simulate_cores(N_TRAIN + N_TEST, rng)
scans = (scans - scans.mean(axis=(0, 2), keepdims=True)) / scans.std(axis=(0, 2), keepdims=True)
target_mean, target_std = targets.mean(0), targets.std(0)
targets = (targets - target_mean) / target_std
print("scans", scans.shape, "targets", targets.shape)


# %%
def as_tensors(x, y):
    return torch.from_numpy(x), torch.from_numpy(y)  # sick here
    return torch.from_numpy(x).float(), torch.from_numpy(y).float()  # well


train_x, train_y = as_tensors(scans[:N_TRAIN], targets[:N_TRAIN])
test_x, test_y = as_tensors(scans[N_TRAIN:], targets[N_TRAIN:])
train_loader = DataLoader(TensorDataset(train_x, train_y), batch_size=64, shuffle=True, drop_last=True)
test_loader = DataLoader(TensorDataset(test_x, test_y), batch_size=128)


# %%
class MixerBlock(nn.Module):
    def __init__(self, tokens, width, token_hidden, channel_hidden):
        super().__init__()
        self.token_norm = nn.LayerNorm(width)
        self.token_mlp = nn.Sequential(nn.Linear(tokens, token_hidden), nn.ReLU(), nn.Linear(token_hidden, tokens))
        self.channel_norm = nn.LayerNorm(width)
        self.channel_mlp = nn.Sequential(nn.Linear(width, channel_hidden), nn.ReLU(), nn.Linear(channel_hidden, width))

    def forward(self, x):
        x = x + self.token_mlp(self.token_norm(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mlp(self.channel_norm(x))


class CoreMixer(nn.Module):
    def __init__(self, width=96, blocks=3):
        super().__init__()
        tokens = DEPTHS // PATCH
        self.embed = nn.Linear(BANDS * PATCH, width)
        self.position = nn.Parameter(torch.randn(tokens, width) * 0.02)
        self.blocks = nn.Sequential(*[MixerBlock(tokens, width, 96, 256) for _ in range(blocks)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 3)

    def forward(self, scan):
        patches = scan.unflatten(2, (-1, PATCH)).permute(0, 2, 1, 3).flatten(2)
        h = self.blocks(self.embed(patches) + self.position)
        return self.head(self.norm(h).mean(dim=1))


# %%
model = CoreMixer().to(train_x.dtype)  # here
optimizer = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
total_steps = EPOCHS * len(train_loader)
schedule = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda k: min(1.0, (k + 1) / 50) * 0.5 * (1 + math.cos(math.pi * k / total_steps))
)
loss_fn = nn.SmoothL1Loss()


@torch.no_grad()
def evaluate():
    model.eval()
    errors = torch.cat([(model(x) - y).abs() for x, y in test_loader]).mean(0)
    model.train()
    return errors.numpy() * target_std


# %%
start = time.perf_counter()
for epoch in range(EPOCHS):
    running = torch.zeros(())
    for x, y in train_loader:
        loss = loss_fn(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        running += loss.detach()
    age_mae, water_mae, fire_mae = evaluate()
    print(
        f"epoch {epoch:2d}  loss {running.item() / len(train_loader):.4f}  "
        f"MAE age {age_mae:.2f} ka  water table {water_mae:.2f} cm  charcoal {fire_mae:.2f}"
    )
print(f"total training seconds: {time.perf_counter() - start:.1f}")
