# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "sundew traps"
# ///
# Sundew traps: an autoencoder with an MMD prior for photographs of leaf blades, seen from above.
# Each picture shows one round trap: tentacles around the rim,
# drops of mucilage at their tips, and sometimes a caught midge.
import time
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)
rng = np.random.default_rng(3)
SIDE, LATENT, BATCH, EPOCHS = 32, 40, 256, 24
N_TRAIN, N_TEST = 3840, 768
LR, MMD_WEIGHT = 1e-3, 20.0


def photographs(n):
    yy, xx = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j].astype(np.float32)
    pictures = np.zeros((n, SIDE, SIDE), np.float32)
    caught = np.zeros(n, np.int64)
    for i in range(n):
        cx, cy = rng.normal(0, 0.08, 2)
        blade = rng.uniform(0.28, 0.45)
        reach = blade + rng.uniform(0.2, 0.45)
        r = np.hypot(xx - cx, yy - cy)
        phi = np.arctan2(yy - cy, xx - cx)
        arms = rng.integers(7, 16)
        turn = rng.uniform(0, 2 * np.pi)
        curl = rng.uniform(-1.5, 1.5)
        spoke = np.cos(arms * (phi + curl * (r - blade)) + turn)
        img = 0.7 / (1 + np.exp((r - blade) * 30))
        img += 0.45 * np.clip(spoke, 0, 1) ** 3 * ((r > blade) & (r < reach))
        img += 0.6 * np.clip(spoke, 0, 1) ** 2 * np.exp(-(((r - reach) / 0.06) ** 2))
        if rng.random() < 0.4:
            bx, by = cx + rng.normal(0, 0.15), cy + rng.normal(0, 0.15)
            img -= 0.6 * np.exp(-(((xx - bx) / 0.1) ** 2 + ((yy - by) / 0.17) ** 2))
            caught[i] = 1
        pictures[i] = img + rng.normal(0, 0.03, img.shape)
    return torch.from_numpy(pictures.clip(0, 1))[:, None], torch.from_numpy(caught)


t0 = time.time()
X, midge = photographs(N_TRAIN)
X_test, midge_test = photographs(N_TEST)
print(f"{len(X)} + {len(X_test)} photographs in {time.time() - t0:.1f} s")
print(f"share of traps with a midge: {midge.float().mean():.2f}, mean grey {X.mean():.3f}")

encoder = nn.Sequential(
    nn.Conv2d(1, 12, 4, 2, 1), nn.LeakyReLU(0.1),
    nn.Conv2d(12, 24, 4, 2, 1), nn.LeakyReLU(0.1),
    nn.Conv2d(24, 48, 4, 2, 1), nn.LeakyReLU(0.1),
    nn.Flatten(), nn.Linear(48 * 16, 256), nn.LeakyReLU(0.1), nn.Linear(256, LATENT),
)  # fmt: skip
decoder = nn.Sequential(
    nn.Linear(LATENT, 256), nn.ReLU(), nn.Linear(256, 48 * 16), nn.ReLU(), nn.Unflatten(1, (48, 4, 4)),
    nn.ConvTranspose2d(48, 24, 4, 2, 1), nn.ReLU(),
    nn.ConvTranspose2d(24, 12, 4, 2, 1), nn.ReLU(),
    nn.ConvTranspose2d(12, 1, 4, 2, 1), nn.Sigmoid(),
)  # fmt: skip
params = [*encoder.parameters(), *decoder.parameters()]
opt = torch.optim.Adam(params, lr=LR, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3 * LR, total_steps=EPOCHS * (N_TRAIN // BATCH))
print("weights:", sum(p.numel() for p in params))


def kernel(a, b):
    """Gaussian kernel between all rows of a and all rows of b"""
    d2 = (a[:, None, :] - b[None, :, :]).pow(2).sum(2)  # sick here
    d2 = a.pow(2).sum(1)[:, None] + b.pow(2).sum(1)[None, :] - 2 * a @ b.T  # well
    return torch.exp(-d2 / (2 * LATENT))


def mmd(z):
    prior = torch.randn_like(z)
    return kernel(prior, prior).mean() + kernel(z, z).mean() - 2 * kernel(prior, z).mean()


def loss_of(x):
    z = encoder(x)
    back = decoder(z)
    rebuild = F.mse_loss(back, x, reduction="sum") / len(x)
    spread = mmd(z)
    return rebuild + MMD_WEIGHT * spread, rebuild.detach(), spread.detach()


flip = lambda x: x.flip(3) if torch.rand(()) < 0.5 else x
turn = lambda x: torch.rot90(x, int(torch.randint(4, ())), (2, 3))
history = []
seen = 0
epoch = 0
begin = time.perf_counter()
while epoch < EPOCHS:
    order = torch.randperm(N_TRAIN)
    at = 0
    sums = torch.zeros(2)
    while at + BATCH <= N_TRAIN:
        x = turn(flip(X[order[at : at + BATCH]]))
        at += BATCH
        loss, rebuild, spread = loss_of(x)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        sums += torch.stack([rebuild, spread])
        seen += len(x)
    with torch.no_grad():
        tests = torch.stack([torch.stack(loss_of(X_test[i : i + BATCH])) for i in range(0, N_TEST, BATCH)]).mean(0)
    epoch += 1
    history.append((sums / (N_TRAIN // BATCH)).tolist() + tests.tolist())
    if epoch % 2 == 0:
        h = history[-1]
        print(f"epoch {epoch:2d}  rebuild {h[0]:.3f}  mmd {h[1]:.5f}", end="   ")
        print(f"test: all {h[2]:.3f}  rebuild {h[3]:.3f}  mmd {h[4]:.5f}")
rate = seen / (time.perf_counter() - begin)

# can the midge be seen in the code? ridge regression on the latent vectors
with torch.no_grad():
    z, z_test = encoder(X), encoder(X_test)
z1 = torch.cat([z, torch.ones(len(z), 1)], 1)
z1_test = torch.cat([z_test, torch.ones(len(z_test), 1)], 1)
w = torch.linalg.solve(z1.T @ z1 + 0.1 * torch.eye(LATENT + 1), z1.T @ (2.0 * midge - 1))
hit = ((z1_test @ w > 0) == (midge_test > 0)).float().mean().item()

# new traps out of the prior, and the way from an empty trap to a full one
with torch.no_grad():
    dreamt = decoder(torch.randn(64, LATENT))
    empty, full = z[midge == 0].mean(0), z[midge == 1].mean(0)
    walk = decoder(torch.stack([empty + a * (full - empty) for a in (0.0, 0.5, 1.0, 1.5)]))
print(f"dreamt traps: mean grey {dreamt.mean():.3f}, contrast {dreamt.std():.3f}")
print("grey along the walk:", " ".join(f"{w.mean():.3f}" for w in walk))
first, final = history[0], history[-1]
print(f"rebuild error on the test set went from {first[3]:.3f} to {final[3]:.3f}")
print(f"latent mean {z.mean():.3f}, std {z.std():.3f}; full traps recognised: {hit:.3f}")
print(f"{rate:.1f} photographs/s")
