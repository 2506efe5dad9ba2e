# /// clinic
# expect = ["PD17.passes-one-by-one"]
# stratum = "twins"
# domain = "candle makers"
# ///
# Exported from candle_makers.ipynb
# %% [markdown]
# # Pour logs of a candle workshop
# A probe in the vessel gives four curves (wax core, wax edge, glass, room) while a candle sets.
# From the curves and the recipe we want: how long it burns, whether it frosts, which wick fits, how strong it smells.

# %%
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(2024)
WAXES, WICKS, LENGTH, CURVES = 6, 5, 160, 4

# %% [markdown]
# ## Pours
# Newton cooling with a plateau where the wax crystallises; the plateau depends on the wax, frost on how fast it cooled.


# %%
def pour(count):
    wax = torch.randint(WAXES, (count,))
    oil = torch.rand(count) * 0.12
    width = 5 + 5 * torch.rand(count)
    room = 16 + 8 * torch.rand(count)
    poured = 58 + 20 * torch.rand(count)
    minutes = torch.linspace(0, 180, LENGTH)
    speed = 0.25 / width
    core = room[:, None] + (poured - room)[:, None] * torch.exp(-speed[:, None] * minutes)
    melting = 44 + 3.0 * wax
    held = torch.sigmoid((core - melting[:, None]) / 2)
    core = core + 4 * held * (1 - held)
    edge = room[:, None] + (core - room[:, None]) * torch.exp(-0.004 * minutes)
    glass = 0.6 * edge + 0.4 * room[:, None]
    curves = torch.stack([core, edge, glass, room[:, None].expand(-1, LENGTH)], 1)
    curves = (curves + 0.4 * torch.randn(count, CURVES, LENGTH) - 40) / 15
    recipe = torch.cat([F.one_hot(wax, WAXES).float(), (oil * 10)[:, None]], 1)
    hours = 0.6 * width**2 * (1 + 0.04 * wax) * (1 - oil) / 10 + 0.1 * torch.randn(count)
    frost = (speed * 30 + 0.3 * torch.randn(count) + 0.2 * (wax == 2) > 1.05).float()
    wick = ((width - 5) + 0.3 * torch.randn(count)).clamp(0, 4.99).long()
    scent = oil * 8 * torch.sigmoid((poured - 62) / 5) + 0.05 * torch.randn(count)
    return curves, recipe, hours, frost, wick, scent


pours = TensorDataset(*pour(3072 + 512))
train_set, test_set = random_split(pours, [3072, 512])
train_loader = DataLoader(train_set, batch_size=48, shuffle=True, drop_last=True)
test_loader = DataLoader(test_set, batch_size=128)

# %% [markdown]
# ## One body, four heads


# %%
class Residual(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.wide = nn.Conv1d(width, width, 5, padding=2 * dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.wide(self.norm(x))))


class PourNet(nn.Module):
    def __init__(self, width=48, layers=4):
        super().__init__()
        self.stem = nn.Conv1d(CURVES, width, 7, stride=2, padding=3)
        self.body = nn.Sequential(*(Residual(width, 2**n) for n in range(layers)))
        self.recipe = nn.Linear(WAXES + 1, 32)
        self.heads = nn.ModuleDict(
            {
                task: nn.Sequential(nn.Linear(2 * width + 32, 64), nn.GELU(), nn.Linear(64, size))
                for task, size in {"hours": 1, "frost": 1, "wick": WICKS, "scent": 1}.items()
            }
        )

    def forward(self, curves, recipe):
        x = self.body(self.stem(curves))
        x = torch.cat([x.mean(-1), x.amax(-1), F.gelu(self.recipe(recipe))], -1)
        return {task: head(x).squeeze(-1) for task, head in self.heads.items()}


def losses_of(out, hours, frost, wick, scent):
    return {
        "hours": F.smooth_l1_loss(out["hours"], hours),
        "frost": F.binary_cross_entropy_with_logits(out["frost"], frost),
        "wick": F.cross_entropy(out["wick"], wick),
        "scent": F.mse_loss(out["scent"], scent),
    }


weights = {"hours": 1.0, "frost": 0.5, "wick": 0.5, "scent": 2.0}
net = PourNet()
optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
epochs = 8
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.5 * (1 + math.cos(math.pi * e / epochs)))

# %% [markdown]
# ## Training


# %%
def test():
    net.eval()
    found = {"hours": 0.0, "frost": 0.0, "wick": 0.0, "scent": 0.0}
    with torch.inference_mode():
        for curves, recipe, hours, frost, wick, scent in test_loader:
            out = net(curves, recipe)
            found["hours"] += (out["hours"] - hours).abs().sum().item()
            found["frost"] += ((out["frost"] > 0) == frost.bool()).sum().item()
            found["wick"] += (out["wick"].argmax(-1) == wick).sum().item()
            found["scent"] += (out["scent"] - scent).abs().sum().item()
    net.train()
    return {task: value / len(test_set) for task, value in found.items()}


history = []
done = 0
began = time.perf_counter()
for epoch in range(epochs):
    net.train()
    for curves, recipe, *targets in train_loader:
        optimizer.zero_grad()
        losses = losses_of(net(curves, recipe), *targets)
        for task, loss in losses.items():  # sick
            (weights[task] * loss).backward(retain_graph=True)  # sick here
        sum(weights[task] * loss for task, loss in losses.items()).backward()  # well
        torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        history.append({task: loss.detach() for task, loss in losses.items()})
        done += len(curves)
    schedule.step()
    found = test()
    print(f"epoch {epoch + 1}: " + ", ".join(f"{task} {value:.3f}" for task, value in found.items()))
rate = done / (time.perf_counter() - began)

# %%
recent = {task: torch.stack([h[task] for h in history[-50:]]).mean().item() for task in weights}
print("last 50 steps:", {task: round(value, 4) for task, value in recent.items()})
print(f"{rate:.1f} candles/s")
