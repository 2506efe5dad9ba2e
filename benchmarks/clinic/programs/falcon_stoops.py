# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "falconry: flight recorders of trained falcons"
# ///
# %% [markdown]
# # Did the falcon catch it?
# Flight recorders on trained falcons give height, climb, speed, turn rate, wingbeat and g-load.
# Each flight holds one stoop (the dive); its limits are known from the recorder's own trigger.
# We predict whether the stoop hit and which lure was flown.

# %%
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(23)
SAMPLES = 192
CHANNELS = 6
LURES = 5
BATCH = 96
EPOCHS = 30

# %% [markdown]
# ## Simulated flights


# %%
def make_flights(count, seed):
    g = torch.Generator().manual_seed(seed)
    rand = lambda *shape: torch.rand(*shape, generator=g)
    t = torch.arange(SAMPLES, dtype=torch.float32)[None]
    start = torch.randint(30, 90, (count,), generator=g)
    length = torch.randint(24, 90, (count,), generator=g)
    stop = start + length
    caught = torch.randint(2, (count,), generator=g)
    lure = torch.randint(LURES, (count,), generator=g)

    where = (t - start[:, None]) / length[:, None]
    inside = ((where >= 0) & (where < 1)).float()
    depth = torch.clamp(where, 0, 1)
    top = 80 + 60 * rand(count, 1)
    height = top * (1 - depth**1.6) + 8 * torch.sin(t / 17 + 6 * rand(count, 1))
    climb = F.pad(height[:, 1:] - height[:, :-1], (1, 0))
    speed = 15 + 55 * torch.sin(math.pi * 0.6 * depth) + 2 * torch.sin(t / 9 + 6 * rand(count, 1))
    wobble = (2 + lure[:, None].float()) * math.pi
    turn = inside * torch.sin(wobble * depth + 0.4 * rand(count, 1)) * 0.8
    beat = 4.5 * (1 - inside) + 0.3 * inside
    pull = torch.exp(-(((where - 0.85) / 0.07) ** 2))
    load = 1 + pull * (1.6 + 0.9 * caught[:, None]) + 0.4 * caught[:, None] * inside * (where > 0.92)

    flight = torch.stack([height / 100, climb / 3, speed / 40, turn, beat / 4, load / 2], dim=1)
    scale = torch.tensor([0.1, 0.2, 0.1, 0.45, 0.3, 0.4])[None, :, None]
    flight = flight + scale * torch.randn(flight.shape, generator=g)
    return flight, start, stop, caught, lure


train = make_flights(2880, seed=1)
test = make_flights(480, seed=2)

# %% [markdown]
# ## Model
# A convolutional encoder over the whole flight, then a summary of the stoop only.


# %%
def summarise_stoop(h, score, start, stop):
    """Attention mean, plain mean and maximum of h [B, C, T] within each flight's stoop."""
    rows = []  # sick
    for flight, mark, a, b in zip(h, score, start.tolist(), stop.tolist()):  # sick here
        dive = flight[:, a:b]  # sick
        weight = torch.softmax(mark[a:b], dim=0)  # sick
        rows.append(torch.cat([dive @ weight, dive.mean(dim=1), dive.amax(dim=1)]))  # sick here
    return torch.stack(rows)  # sick
    t = torch.arange(h.shape[-1])  # well
    inside = (t >= start[:, None]) & (t < stop[:, None])  # well
    weight = torch.softmax(score.masked_fill(~inside, -math.inf), dim=1)  # well
    even = inside.float() / (stop - start)[:, None]  # well
    means = h @ torch.stack([weight, even], dim=2)  # well
    peak = h.masked_fill(~inside[:, None], -math.inf).amax(dim=2)  # well
    return torch.cat([means[..., 0], means[..., 1], peak], dim=1)  # well


class StoopReader(nn.Module):
    def __init__(self, width=40):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 7, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, width, 5, padding=4, dilation=2),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
        )
        self.score = nn.Conv1d(width, 1, 1)
        self.trunk = nn.Sequential(nn.Linear(3 * width, 64), nn.ReLU(inplace=True), nn.Dropout(0.1))
        self.caught = nn.Linear(64, 1)
        self.lure = nn.Linear(64, LURES)

    def forward(self, flight, start, stop):
        h = self.encoder(flight)
        x = self.trunk(summarise_stoop(h, self.score(h).squeeze(1), start, stop))
        return self.caught(x).squeeze(1), self.lure(x)


model = StoopReader()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2, fused=True)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

# %% [markdown]
# ## Training


# %%
def run_epoch(generator):
    model.train()
    total = torch.zeros(())
    for index in torch.randperm(len(train[0]), generator=generator).split(BATCH):
        flight, start, stop, caught, lure = (part[index] for part in train)
        caught_logit, lure_logits = model(flight, start, stop)
        loss = F.binary_cross_entropy_with_logits(caught_logit, caught.float())
        loss = loss + F.cross_entropy(lure_logits, lure)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(index)
    scheduler.step()
    return total.item() / len(train[0])


@torch.no_grad()
def score_test():
    model.eval()
    flight, start, stop, caught, lure = test
    caught_logit, lure_logits = model(flight, start, stop)
    return (
        ((caught_logit > 0) == caught.bool()).float().mean().item(),
        (lure_logits.argmax(1) == lure).float().mean().item(),
    )


# %%
generator = torch.Generator().manual_seed(99)
began = time.perf_counter()
for epoch in range(EPOCHS):
    tick = time.perf_counter()
    loss = run_epoch(generator)
    hits, lures = score_test()
    print(
        f"epoch {epoch:2d} loss {loss:.3f} caught {hits:.3f} lure {lures:.3f} ({time.perf_counter() - tick:.2f} s)",
        flush=True,
    )
print(f"training took {time.perf_counter() - began:.1f} s")
