# /// clinic
# expect = ["PD09.oversized-layer"]
# stratum = "twins"
# domain = "frost on windows"
# ///
# %% [markdown]
# # Frost on windows
# A small VAE over photographs of frosted panes; the latent is used later to sort the panes by crystal habit
# (ferns, plates, needles). Here: training on drawn panes only.

# %%
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(31)

PANES = 704
SIZE = 64
BATCH = 16
EPOCHS = 5
LATENT = 24
HIDDEN = 128
BETA_MAX = 0.4


# %%
def draw_panes(n, size):
    """Branches under six-fold symmetry with random side branches, blurred by a random amount."""
    freq = torch.fft.fftfreq(size)
    fy, fx = torch.meshgrid(freq, freq, indexing="ij")
    radius = (fx**2 + fy**2).sqrt().clamp(min=1 / size)
    bearing = torch.atan2(fy, fx)
    panes, habits = [], []
    for _ in range(n):
        habit = int(torch.randint(3, (1,)))
        turn = float(torch.rand(1)) * math.pi
        slope = (1.1, 1.6, 0.9)[habit] + 0.2 * float(torch.rand(1))
        sharp = (6.0, 0.5, 14.0)[habit]
        fan = torch.exp(sharp * (torch.cos(3 * (bearing - turn)).abs() - 1))
        spectrum = torch.randn(size, size, dtype=torch.complex64) * fan / radius**slope
        field = torch.fft.ifft2(spectrum).real
        panes.append(torch.sigmoid(2.0 * (field - field.mean()) / field.std()))
        habits.append(habit)
    return torch.stack(panes)[:, None], torch.tensor(habits)


panes, habits = draw_panes(PANES, SIZE)
val_panes, val_habits = panes[-64:], habits[-64:]
panes, habits = panes[:-64], habits[:-64]
print("panes", tuple(panes.shape), "mean", round(panes.mean().item(), 3))


# %%
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 24, 5, stride=2, padding=2),
            nn.SiLU(),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.SiLU(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(4),  # well
            nn.Flatten(),
            nn.Linear(48 * 32 * 32, HIDDEN),  # sick here
            nn.Linear(48 * 4 * 4, HIDDEN),  # well
            nn.SiLU(),
        )
        self.mean = nn.Linear(HIDDEN, LATENT)
        self.logvar = nn.Linear(HIDDEN, LATENT)

    def forward(self, x):
        h = self.squeeze(self.trunk(x))
        return self.mean(h), self.logvar(h).clamp(-8, 8)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.seed = nn.Linear(LATENT, 96 * 4 * 4)
        widths = [96, 48, 32, 24, 16]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.SiLU())
            for a, b in zip(widths[:-1], widths[1:])
        )
        self.paint = nn.Conv2d(widths[-1], 1, 3, padding=1)

    def forward(self, z):
        h = self.seed(z).view(-1, 96, 4, 4)
        for stage in self.stages:
            h = stage(F.interpolate(h, scale_factor=2, mode="nearest"))
        return self.paint(h)


class FrostVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), Decoder()

    def forward(self, x):
        mean, logvar = self.encoder(x)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp() if self.training else mean
        return self.decoder(z), mean, logvar


def elbo(logits, x, mean, logvar, beta):
    rebuilt = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x)
    kl = -0.5 * (1 + logvar - mean**2 - logvar.exp()).sum(1).mean()
    return rebuilt + beta * kl, rebuilt, kl


# %%
model = FrostVAE()
optimizer = torch.optim.AdamW(model.parameters(), lr=8e-4, weight_decay=0.01)
print("parameters", sum(p.numel() for p in model.parameters()))


# %%
@torch.no_grad()
def check(model):
    model.eval()
    losses = []
    for x in val_panes.split(BATCH):
        logits, mean, logvar = model(x)
        losses.append(elbo(logits, x, mean, logvar, 1.0)[0])
    codes = model.encoder(val_panes)[0]
    far = torch.cdist(codes, codes) + torch.eye(len(codes)) * 1e6
    purity = (val_habits[far.argmin(1)] == val_habits).float().mean()
    model.train()
    return torch.stack(losses).mean().item(), purity.item()


# %%
steps_per_epoch = len(panes) // BATCH
step, history = 0, []
began = time.perf_counter()
for epoch in range(EPOCHS):
    order = torch.randperm(len(panes))
    for i in range(steps_per_epoch):
        x = panes[order[i * BATCH : (i + 1) * BATCH]]
        if torch.rand(1) < 0.5:
            x = x.flip(-1)
        beta = BETA_MAX * min(1.0, step / (2 * steps_per_epoch))
        logits, mean, logvar = model(x)
        loss, rebuilt, kl = elbo(logits, x, mean, logvar, beta)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 12 == 0:
            history.append((step, rebuilt.item(), kl.item()))
    val, purity = check(model)
    print(f"epoch {epoch}  rebuilt {history[-1][1]:.1f}  kl {history[-1][2]:.2f}  val {val:.1f}  purity {purity:.2f}")
elapsed = time.perf_counter() - began

# %%
rate = step * BATCH / elapsed
print(f"{rate:.1f} panes/s")
