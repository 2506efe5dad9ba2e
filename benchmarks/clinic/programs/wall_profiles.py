# /// clinic
# expect = ["PD10.block-diagonal"]
# stratum = "twins"
# domain = "dry-stone wall profiles"
# ///
# %% [markdown]
# # Dry-stone wall profiles: which stones are going to move?
# Every survey window is one square metre of wall face with 48 stones. A stone touches the stones beside, above and
# below it. From shape, coursing and batter we predict (a) each stone's outward displacement over the next winters
# and (b) whether the window as a whole will bulge. Message passing over contacts, written by hand.

# %%
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

STONES, COURSES = 48, 6
FEATURES = 9


@dataclass
class Settings:
    windows: int = 900
    held_out: int = 120
    batch: int = 24
    epochs: int = 16
    hidden: int = 96
    rounds: int = 4
    lr: float = 2e-3
    weight_decay: float = 1e-4
    seed: int = 3


@dataclass
class Window:
    stones: torch.Tensor  # (48, 9) features
    touch: torch.Tensor  # (48, 48) contacts, each row sums to one
    moved: torch.Tensor  # (48,) displacement in cm
    bulge: torch.Tensor  # () 0 or 1


# %%
def build_window(rng):
    per = STONES // COURSES
    widths = rng.gamma(6.0, 1.0, (COURSES, per))
    widths /= widths.sum(1, keepdims=True)
    right = widths.cumsum(1)
    left = right - widths
    height = rng.uniform(0.7, 1.3, (COURSES, 1)) * rng.normal(1, 0.08, (COURSES, per))
    depth = rng.gamma(9.0, 1 / 9.0, (COURSES, per))
    tilt = rng.normal(0, 3, (COURSES, per))
    batter = np.full((COURSES, per), rng.normal(8, 2))
    hearting = np.clip(rng.normal(0.8, 0.12) + rng.normal(0, 0.05, (COURSES, per)), 0, 1)
    course = np.repeat(np.arange(COURSES)[:, None], per, 1)
    through = (depth > 1.45).astype(float)

    touch = np.zeros((STONES, STONES), np.float32)
    joint = np.zeros((COURSES, per))
    for c in range(COURSES):
        for s in range(per):
            i = c * per + s
            if s + 1 < per:
                touch[i, i + 1] = touch[i + 1, i] = 0.5
            if c + 1 < COURSES:
                over = np.minimum(right[c, s], right[c + 1]) - np.maximum(left[c, s], left[c + 1])
                above = np.flatnonzero(over > 0.003)
                touch[i, (c + 1) * per + above] = touch[(c + 1) * per + above, i] = over[above] / widths[c, s]
                joint[c, s] = np.abs(right[c, s] - right[c + 1]).min()

    load = (COURSES - course) / COURSES
    weak = 1.2 * load + 0.25 * np.abs(tilt) - 1.5 * depth - 6 * joint - 1.2 * hearting - 0.1 * batter - 0.8 * through
    weak = weak.reshape(-1)
    share = touch / touch.sum(1, keepdims=True)
    spread = 0.5 * weak + 0.3 * share @ weak + 0.2 * share @ (share @ weak)
    moved = np.log1p(np.exp(spread + 3.0)) + rng.normal(0, 0.1, STONES)
    bulge = float(np.sort(moved)[-8:].mean() > 1.75)
    stones = np.stack(
        [widths * per, height, depth, tilt / 3, batter / 8, hearting, course / COURSES, joint * 8, through]
    )
    return Window(
        torch.tensor(stones.reshape(FEATURES, -1).T, dtype=torch.float32),
        torch.from_numpy(share.astype(np.float32)),
        torch.tensor(moved, dtype=torch.float32),
        torch.tensor(bulge),
    )


def collate(windows):
    stones = torch.cat([w.stones for w in windows])
    touch = torch.block_diag(*[w.touch for w in windows])  # sick here
    touch = torch.stack([w.touch for w in windows])  # well
    moved = torch.cat([w.moved for w in windows])
    bulge = torch.stack([w.bulge for w in windows])
    return stones, touch, moved, bulge


# %%
class Contact(nn.Module):
    """One round: each stone hears from the stones it touches and revises its state."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hear = nn.Linear(width, width, bias=False)
        self.revise = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, h, touch):
        n = self.norm(h)
        heard = touch @ self.hear(n)  # sick here
        heard = (touch @ self.hear(n).unflatten(0, (-1, STONES))).flatten(0, 1)  # well
        return h + self.revise(torch.cat([n, heard], dim=1))


class WallNet(nn.Module):
    def __init__(self, width, rounds):
        super().__init__()
        self.enter = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.Linear(width, width))
        self.rounds = nn.ModuleList(Contact(width) for _ in range(rounds))
        self.stone_head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))
        self.window_head = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, stones, touch):
        h = self.enter(stones)
        for contact in self.rounds:
            h = contact(h, touch)
        whole = h.unflatten(0, (-1, STONES))
        pooled = torch.cat([whole.mean(1), whole.amax(1)], dim=1)
        return F.softplus(self.stone_head(h)).squeeze(-1), self.window_head(pooled).squeeze(-1)


@torch.no_grad()
def survey(model, windows, batch):
    model.eval()
    error, right = 0.0, 0
    for k in range(0, len(windows), batch):
        stones, touch, moved, bulge = collate(windows[k : k + batch])
        guess, logit = model(stones, touch)
        error += (guess - moved).abs().sum().item()
        right += ((logit > 0) == (bulge > 0.5)).sum().item()
    model.train()
    return error / (len(windows) * STONES), right / len(windows)


# %%
cfg = Settings()
rng = np.random.default_rng(cfg.seed)
torch.manual_seed(cfg.seed)
windows = [build_window(rng) for _ in range(cfg.windows + cfg.held_out)]
train, held = windows[: cfg.windows], windows[cfg.windows :]
print(f"{len(train)} windows, {np.mean([w.bulge.item() for w in train]):.2f} bulging")

model = WallNet(cfg.hidden, cfg.rounds)
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, cfg.epochs)

# %%
seen = 0
began = time.perf_counter()
for epoch in range(cfg.epochs):
    order = rng.permutation(len(train))
    total = 0.0
    for k in range(0, len(order) - cfg.batch + 1, cfg.batch):
        stones, touch, moved, bulge = collate([train[i] for i in order[k : k + cfg.batch]])
        guess, logit = model(stones, touch)
        loss = F.smooth_l1_loss(guess, moved) + 0.3 * F.binary_cross_entropy_with_logits(logit, bulge)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * cfg.batch
        seen += cfg.batch
    schedule.step()
    mae, acc = survey(model, held, cfg.batch)
    print(f"epoch {epoch:2d}  loss {total / len(train):.4f}  displacement error {mae:.3f} cm  bulge {acc:.3f}")

# %%
rate = seen / (time.perf_counter() - began)
print(f"{rate:.1f} windows/s")
