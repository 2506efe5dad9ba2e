# /// clinic
# expect = ["PD10.layer-by-edge"]
# stratum = "twins"
# domain = "snail races"
# ///
# %% [markdown]
# # Snail races: who follows whose slime?
#
# Snails race from the centre of a damp cloth to its rim. They like to glide on trails of others. We simulate races,
# then learn the interaction law with a hand-written message-passing network that predicts the next displacement of
# each snail as a two-component Gaussian mixture.

# %%
import math
import time

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(13)

SNAILS = 28
RACES = 96
TICKS = 40
HISTORY = 6
HIDDEN = 64
ROUNDS = 2
BATCH = 24
EPOCHS = 3
RIM = 3.3
BOUNDS = dict(lower=-6.0, upper=2.0)


# %% [markdown]
# ## Simulated races
#
# Each snail has a heading, a pace and a shyness; the heading is drawn towards the centre of mass of the slime within
# reach and away from very near shells.


# %%
def simulate(races: int, snails: int, ticks: int, generator: torch.Generator) -> torch.Tensor:
    angle = torch.rand(races, snails, generator=generator) * 2 * math.pi
    place = 0.3 * torch.stack([angle.cos(), angle.sin()], -1)
    pace = 0.04 + 0.04 * torch.rand(races, snails, 1, generator=generator)
    shy = torch.rand(races, snails, 1, generator=generator)
    track = [place]
    for _ in range(ticks + HISTORY):
        gap = place[:, None, :, :] - place[:, :, None, :]
        far = gap.norm(dim=-1, keepdim=True)
        pull = (gap * torch.exp(-((far / 0.6) ** 2))).mean(2)
        push = -(gap / (far + 1e-2) * torch.exp(-far / 0.08)).mean(2)
        heading = torch.stack([angle.cos(), angle.sin()], -1)
        drift = heading + 4.0 * (1 - shy) * pull + 3.0 * shy * push
        drift = drift + 0.15 * torch.randn(drift.shape, generator=generator)
        angle = torch.atan2(drift[..., 1], drift[..., 0])
        place = place + pace * F.normalize(drift, dim=-1)
        track.append(place)
    return torch.stack(track, 1)


generator = torch.Generator().manual_seed(7)
tracks = simulate(RACES, SNAILS, TICKS, generator)
print("tracks", tuple(tracks.shape), "furthest snail", f"{tracks.norm(dim=-1).max():.2f} of {RIM}")


# %%
def windows(tracks: torch.Tensor):
    """Steps of the last HISTORY ticks, where the snails are now, and the step to predict."""
    steps = tracks.diff(dim=1)
    past, here, nxt = [], [], []
    for t in range(HISTORY, steps.shape[1]):
        past.append(steps[:, t - HISTORY : t].transpose(1, 2).flatten(2))
        here.append(tracks[:, t])
        nxt.append(steps[:, t])
    return torch.cat(past) / 0.06, torch.cat(here), torch.cat(nxt) / 0.06


held_out = RACES // 8
train_set = windows(tracks[held_out:])
valid_set = windows(tracks[:held_out])


# %% [markdown]
# ## Network


# %%
class SlimeLayer(nn.Module):
    """Messages between all snails of a race, weighted by how near they are."""

    def __init__(self, hidden: int):
        super().__init__()
        self.joint = nn.Linear(2 * hidden + 3, hidden)  # sick
        self.follower = nn.Linear(hidden, hidden)  # well
        self.leader = nn.Linear(hidden, hidden, bias=False)  # well
        self.offset = nn.Linear(3, hidden, bias=False)  # well
        self.reach = nn.Parameter(torch.tensor(0.5))
        self.update = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, state, geometry):
        n = state.shape[1]
        mine = state[:, :, None, :].expand(-1, -1, n, -1)  # sick
        theirs = state[:, None, :, :].expand(-1, n, -1, -1)  # sick
        pair = self.joint(torch.cat([mine, theirs, geometry], dim=-1))  # sick here
        pair = self.follower(state)[:, :, None, :] + self.leader(state)[:, None, :, :] + self.offset(geometry)  # well
        message = F.relu(pair)
        near = torch.exp(-geometry[..., 2] / F.softplus(self.reach))
        near = near / near.sum(-1, keepdim=True)
        heard = torch.einsum("bij,bijh->bih", near, message)
        return self.norm(state + self.update(torch.cat([state, heard], dim=-1)))


class Paddock(nn.Module):
    def __init__(self, history: int, hidden: int, rounds: int, components: int = 2):
        super().__init__()
        self.components = components
        self.embed = nn.Sequential(nn.Linear(2 * history + 2, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.rounds = nn.ModuleList(SlimeLayer(hidden) for _ in range(rounds))
        self.mixture = nn.Linear(hidden, components * 4)

    def forward(self, past, here):
        gap = here[:, None, :, :] - here[:, :, None, :]
        geometry = torch.cat([gap, gap.square().sum(-1, keepdim=True).add(1e-8).sqrt()], dim=-1)
        state = self.embed(torch.cat([past, here], dim=-1))
        for layer in self.rounds:
            state = layer(state, geometry)
        weight, mean, log_scale = self.mixture(state).split([self.components, 2 * self.components, self.components], -1)
        mean = mean.unflatten(-1, (self.components, 2))
        return weight.log_softmax(-1), mean, log_scale.clamp(BOUNDS["lower"], BOUNDS["upper"])


def mixture_nll(prediction, target):
    log_weight, mean, log_scale = prediction
    square = (target[..., None, :] - mean).square().sum(-1)
    log_density = -0.5 * square * torch.exp(-2 * log_scale) - 2 * log_scale - math.log(2 * math.pi)
    return -torch.logsumexp(log_weight + log_density, dim=-1).mean()


# %% [markdown]
# ## Training

# %%
model = Paddock(HISTORY, HIDDEN, ROUNDS)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
batches_per_epoch = len(train_set[0]) // BATCH
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=EPOCHS * batches_per_epoch)
print("parameters", sum(p.numel() for p in model.parameters()), "batches per epoch", batches_per_epoch)


def turn(past, here, nxt, angle):
    """Rotate a whole race, the law does not know north."""
    c, s = math.cos(angle), math.sin(angle)
    rotation = torch.tensor([[c, -s], [s, c]])
    return (past.unflatten(-1, (-1, 2)) @ rotation).flatten(-2), here @ rotation, nxt @ rotation


history = []
seen = 0
start = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    order = torch.randperm(len(train_set[0]), generator=generator)[: batches_per_epoch * BATCH]
    total = 0.0
    for rows in order.view(-1, BATCH):
        angle = 2 * math.pi * torch.rand((), generator=generator).item()
        past, here, nxt = turn(*(part[rows] for part in train_set), angle)
        loss = mixture_nll(model(past, here), nxt)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
        seen += len(rows)
    model.eval()
    with torch.no_grad():
        parts = zip(*(part.split(BATCH) for part in valid_set))
        valid = sum(mixture_nll(model(p, h), n).item() * len(p) for p, h, n in parts) / len(valid_set[0])
    history.append((total / batches_per_epoch, valid))
    print(f"epoch {epoch}: train nll {history[-1][0]:.4f}, valid nll {valid:.4f}")
rate = seen / (time.perf_counter() - start)

# %%
reach = [round(F.softplus(layer.reach).item(), 3) for layer in model.rounds]
print("learned reach of slime per round", reach)
print(f"{rate:.1f} races/s")
