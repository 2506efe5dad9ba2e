# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "tracks of curling stones"
# ///
# %% [markdown]
# # Where does the stone go next?
# Tracks of curling stones from the overhead camera, six positions a second.  A small causal
# transformer reads the track so far and gives, for each moment, a mixture of Gaussians for the
# stone's next displacement.  Tracks stop when the stone does, so they differ in length.

# %%
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

torch.manual_seed(11)
rng = np.random.default_rng(11)

TRACKS, HELD_OUT, BATCH = 1536, 192, 64
LONGEST, FEATURES, COMPONENTS = 64, 6, 4
WIDTH, HEADS, LAYERS = 48, 2, 2
EPOCHS = 60


# %% Simulation: friction, curl that grows as the stone slows, sweeping now and then
def throw():
    weight, curl = rng.uniform(1.5, 2.2), rng.choice([-1.0, 1.0]) * rng.uniform(0.6, 1.4)
    position, velocity = np.zeros(2), np.array([rng.normal(0, 0.03), weight])
    friction = rng.uniform(0.018, 0.026)
    rows, sweeping = [], 0
    for _ in range(LONGEST + 1):
        speed = np.hypot(*velocity)
        if speed < 0.25:
            break
        if sweeping == 0 and rng.random() < 0.06:
            sweeping = int(rng.integers(3, 10))
        slowing = friction * (0.7 if sweeping else 1.0) * 9.81 * 0.1
        sideways = np.array([velocity[1], -velocity[0]]) / speed
        velocity = velocity * max(0.0, 1 - 1.6 * slowing / speed)
        velocity = velocity + sideways * curl * 0.0064 / max(speed, 0.4)
        position = position + velocity * 0.16 + rng.normal(0, 0.004, 2)
        rows.append([*position, *velocity, curl, float(sweeping > 0)])
        sweeping = max(0, sweeping - 1)
    track = torch.tensor(np.array(rows), dtype=torch.float32)
    return track[:-1], (track[1:, :2] - track[:-1, :2]) * 5.0


def collate(throws):
    seen, ahead = zip(*throws)
    lengths = torch.tensor([len(s) for s in seen])
    return pad_sequence(seen, batch_first=True), pad_sequence(ahead, batch_first=True), lengths


throws = [throw() for _ in range(TRACKS + HELD_OUT)]
train = DataLoader(throws[:TRACKS], batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
test = DataLoader(throws[TRACKS:], batch_size=BATCH, collate_fn=collate)


# %% Model
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 3 * WIDTH), nn.ReLU(), nn.Linear(3 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class StoneModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.place = nn.Parameter(torch.randn(LONGEST, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.head = nn.Linear(WIDTH, COMPONENTS * 5)

    def forward(self, tracks):
        h = self.blocks(self.embed(tracks) + self.place[: tracks.shape[1]])
        return self.head(h).unflatten(-1, (COMPONENTS, 5))


# %% Loss: the mean over tracks of each track's mean negative log likelihood
def mixture_nll(params, ahead):
    log_weight = F.log_softmax(params[..., 0], dim=-1)
    mean, log_sd = params[..., 1:3], params[..., 3:5].clamp(-6, 3)
    z = (ahead.unsqueeze(-2) - mean) * torch.exp(-log_sd)
    log_density = -0.5 * z.square().sum(-1) - log_sd.sum(-1) - math.log(2 * math.pi)
    return -torch.logsumexp(log_weight + log_density, dim=-1)


def track_loss(params, ahead, lengths):
    per_track = []  # sick
    for p, a, n in zip(params, ahead, lengths.tolist()):  # sick here
        per_track.append(mixture_nll(p[:n], a[:n]).mean())  # sick here
    return torch.stack(per_track).mean()  # sick
    inside = torch.arange(ahead.shape[1]) < lengths[:, None]  # well
    nll = mixture_nll(params, ahead).masked_fill(~inside, 0.0)  # well
    return (nll.sum(1) / lengths).mean()  # well


# %% Training
model = StoneModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train))


def held_out_loss():
    model.eval()
    with torch.no_grad():
        values = [track_loss(model(seen), ahead, lengths) for seen, ahead, lengths in test]
    model.train()
    return torch.stack(values).mean().item()


started = time.perf_counter()
for epoch in range(EPOCHS):
    losses = []
    for seen, ahead, lengths in train:
        optimizer.zero_grad()
        loss = track_loss(model(seen), ahead, lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.detach())
    if (epoch + 1) % 12 == 0:
        print(f"epoch {epoch + 1}: train nll {torch.stack(losses).mean():.4f}, held out {held_out_loss():.4f}")
print(f"training took {time.perf_counter() - started:.1f} s in total")
