# /// clinic
# expect = ["PD03.per-sample-indexing"]
# stratum = "twins"
# domain = "bog butter"
# ///
# %% [markdown]
# # Bog butter: a conditional VAE of lipid profiles
#
# Each sample is a scraping of a lump of bog butter (keg, bladder, basket, bare). GC-MS gives log areas of 96 fatty
# acids, hydroxy acids and acylglycerols, many below the limit of detection; IRMS gives d13C of C16:0 and C18:0.
# The VAE is conditioned on vessel, depth and acidity of the bog, the latent space is asked for the origin.

# %%
import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset, random_split

VESSELS = ["keg", "bladder", "basket", "bare"]
ORIGINS = ["dairy", "adipose", "plant"]


@dataclass
class Config:
    samples: int = 60_000
    peaks: int = 96
    hidden: int = 112
    latent: int = 12
    batch_size: int = 512
    epochs: int = 18
    lr: float = 1.5e-3
    warmup: int = 200
    beta: float = 0.5
    origin_weight: float = 0.3
    seed: int = 1859


cfg = Config()
set_seed(cfg.seed)


# %%
def simulate(cfg):
    """Profiles from origin, hydrolysis (triacylglycerols become acids) and oxidation, which grow with age and depth."""
    g = torch.Generator().manual_seed(cfg.seed)
    n, p = cfg.samples, cfg.peaks
    origin = torch.multinomial(torch.tensor([0.62, 0.33, 0.05]), n, replacement=True, generator=g)
    vessel = torch.randint(len(VESSELS), (n,), generator=g)
    depth = 0.3 + 2.5 * torch.rand(n, generator=g)
    acidity = 3.2 + 1.6 * torch.rand(n, generator=g)
    age = torch.rand(n, generator=g)
    base = torch.randn(len(ORIGINS), p, generator=g) * 1.2
    hydrolysis = torch.randn(p, generator=g)
    oxidation = torch.randn(p, generator=g)
    wood = torch.randn(len(VESSELS), p, generator=g) * 0.3
    rate = torch.sigmoid(2.5 * age + 0.4 * depth - 0.6 * (acidity - 3.2) - 1.5)
    decay = torch.sigmoid(2.0 * age - 0.9 * depth)
    profile = base[origin] + rate[:, None] * hydrolysis + decay[:, None] * oxidation + wood[vessel]
    profile += 0.35 * torch.randn(n, p, generator=g)
    limit = -1.4 + 0.3 * torch.randn(p, generator=g)
    found = (profile > limit).float()
    profile = (profile - profile.mean(0)) / profile.std(0) * found
    c16 = torch.tensor([-29.5, -30.2, -31.8])[origin] + 0.6 * torch.randn(n, generator=g)
    c18 = torch.tensor([-34.1, -31.0, -31.5])[origin] + 0.7 * torch.randn(n, generator=g)
    isotopes = torch.stack([(c16 + 30) / 2, (c18 + 33) / 2], dim=1)
    bog = torch.stack([depth - 1.5, acidity - 4], dim=1)
    return profile, found, isotopes, vessel, bog, origin


class ScrapingDataset(Dataset):
    def __init__(self, profile, found, isotopes, vessel, bog, origin):
        self.profile = profile
        self.found = found
        self.isotopes = isotopes
        self.vessel = vessel
        self.bog = bog
        self.origin = origin

    def __len__(self):
        return len(self.profile)

    def __getitem__(self, i):
        return {
            "profile": self.profile[i],
            "found": self.found[i],
            "isotopes": self.isotopes[i],
            "vessel": self.vessel[i],
            "bog": self.bog[i],
            "origin": self.origin[i],
        }

    def __getitems__(self, indices):  # well
        return self[torch.tensor(indices)]  # well


# %%
class ConditionalVAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        context = len(VESSELS) + 2
        self.encoder = nn.Sequential(
            nn.Linear(2 * cfg.peaks + 2 + context, cfg.hidden),
            nn.GELU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.GELU(),
            nn.Linear(cfg.hidden, 2 * cfg.latent),
        )
        self.decoder = nn.Sequential(
            nn.Linear(cfg.latent + context, cfg.hidden),
            nn.GELU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.GELU(),
            nn.Linear(cfg.hidden, 2 * cfg.peaks + 2),
        )
        self.origin = nn.Linear(cfg.latent, len(ORIGINS))

    def forward(self, batch):
        context = torch.cat([F.one_hot(batch["vessel"], len(VESSELS)).float(), batch["bog"]], dim=1)
        x = torch.cat([batch["profile"], batch["found"], batch["isotopes"], context], dim=1)
        mean, log_var = self.encoder(x).chunk(2, dim=1)
        log_var = log_var.clamp(-8, 4)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp() if self.training else mean
        p = batch["profile"].shape[1]
        out = self.decoder(torch.cat([z, context], dim=1))
        return out[:, :p], out[:, p : 2 * p], out[:, 2 * p :], mean, log_var, self.origin(z)


def losses(out, batch):
    profile, found, isotopes, mean, log_var, origin = out
    area = ((profile - batch["profile"]) ** 2 * batch["found"]).sum(1).mean()
    seen = F.binary_cross_entropy_with_logits(found, batch["found"], reduction="none").sum(1).mean()
    ratio = F.mse_loss(isotopes, batch["isotopes"]) * 4
    kl = -0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).sum(1).mean()
    return area + seen + ratio, kl, F.cross_entropy(origin, batch["origin"])


# %%
accelerator = Accelerator(cpu=True)
scrapings = ScrapingDataset(*simulate(cfg))
train, valid = random_split(scrapings, [0.9, 0.1], generator=torch.Generator().manual_seed(cfg.seed))
train_loader = DataLoader(train, batch_size=cfg.batch_size, shuffle=True, drop_last=True)  # sick here
valid_loader = DataLoader(valid, batch_size=cfg.batch_size)  # sick here
collate = lambda batch: batch  # well
train_loader = DataLoader(train, batch_size=cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate)  # well
valid_loader = DataLoader(valid, batch_size=cfg.batch_size, collate_fn=collate)  # well
model = ConditionalVAE(cfg)
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
total_steps = cfg.epochs * len(train_loader)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: min(1, (s + 1) / cfg.warmup) * 0.5 * (1 + math.cos(math.pi * min(1, s / total_steps)))
)
model, optimizer, train_loader, valid_loader, scheduler = accelerator.prepare(
    model, optimizer, train_loader, valid_loader, scheduler
)

# %%
seen, start = 0, time.perf_counter()
for epoch in range(cfg.epochs):
    model.train()
    running = 0.0
    for batch in train_loader:
        fit, kl, origin = losses(model(batch), batch)
        loss = fit + cfg.beta * kl + cfg.origin_weight * origin
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        running += loss.item()
        seen += len(batch["origin"])
    model.eval()
    hits = count = 0
    with torch.no_grad():
        for batch in valid_loader:
            guess = model(batch)[-1].argmax(1)
            hits += (guess == batch["origin"]).sum().item()
            count += len(guess)
    accelerator.print(f"epoch {epoch + 1:2d}  loss {running / len(train_loader):.3f}  origin {hits / count:.3f}")
rate = seen / (time.perf_counter() - start)
accelerator.print(f"{rate:.1f} samples/s")
