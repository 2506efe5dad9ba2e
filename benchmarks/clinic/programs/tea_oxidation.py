# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "tea leaf oxidation, electronic nose"
# ///
# %% [markdown]
# Tea leaves, e-nose curves
#
# Twelve gas sensors sniff at a rolled batch of leaves while it oxidises. From the curve we want
# the kind of tea that the batch will become. A unitary-style RNN keeps the early minutes in mind.

# %%
import math
import os
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

torch.manual_seed(3)
EPOCHS = int(os.environ.get("EPOCHS", "75"))
KINDS = ["white", "yellow", "green", "oolong light", "oolong dark", "black"]
MINUTES, SENSORS, HIDDEN, BATCH = 48, 12, 64, 128


# %%
def sensor_curves(n, seed):
    """Two-stage kinetics: catechins -> theaflavins -> thearubigins, read by cross-sensitive sensors."""
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, len(KINDS), (n,), generator=g)
    k1 = torch.tensor([0.01, 0.02, 0.005, 0.05, 0.09, 0.14])[kind] * (0.85 + 0.3 * torch.rand(n, generator=g))
    k2 = torch.tensor([0.01, 0.03, 0.02, 0.02, 0.03, 0.06])[kind] * (0.85 + 0.3 * torch.rand(n, generator=g))
    t = torch.arange(MINUTES).float()
    a = torch.exp(-k1[:, None] * t)
    b = k1[:, None] / (k2 - k1 + 1e-3)[:, None] * (a - torch.exp(-k2[:, None] * t))
    c = 1 - a - b
    # a short whiff of steam at the very beginning sets the fixed teas apart
    steamed = ((kind == 1) | (kind == 2)).float()
    whiff = steamed[:, None] * torch.exp(-((t - 4) ** 2) / 3) * torch.rand(n, 1, generator=g).add(0.5)
    pools = torch.stack([a, b, c, whiff], dim=-1)
    response = torch.randn(4, SENSORS, generator=torch.Generator().manual_seed(99)) / math.sqrt(4)
    drift = torch.cumsum(0.02 * torch.randn(n, MINUTES, SENSORS, generator=g), dim=1)
    noise = 0.12 * torch.randn(n, MINUTES, SENSORS, generator=g)
    return pools @ response + drift + noise, kind


x_train, y_train = sensor_curves(4096, seed=1)
x_test, y_test = sensor_curves(1024, seed=2)
mu, sd = x_train.mean((0, 1)), x_train.std((0, 1))
x_train, x_test = (x_train - mu) / sd, (x_test - mu) / sd
print("curves", tuple(x_train.shape), "kinds", torch.bincount(y_train).tolist())


# %%
class ModReLU(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.empty(width).uniform_(-0.01, 0.01))

    def forward(self, z):
        return torch.sign(z) * F.relu(z.abs() + self.bias)


class OrthogonalRNN(nn.Module):
    """h' = modrelu(W h + V x) with W kept on the orthogonal group."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.drive = nn.Linear(inputs, hidden)
        self.recurrent = orthogonal(nn.Linear(hidden, hidden, bias=False), orthogonal_map="cayley")  # here
        self.act = ModReLU(hidden)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.hidden)
        w = self.recurrent.weight  # well
        for u in self.drive(x).unbind(1):
            h = self.act(u + self.recurrent(h))  # sick here
            h = self.act(u + F.linear(h, w))  # well
        return h


class TeaClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = OrthogonalRNN(SENSORS, HIDDEN)
        self.head = nn.Sequential(nn.Linear(HIDDEN, 64), nn.ReLU(), nn.Linear(64, len(KINDS)))

    def forward(self, x):
        return self.head(self.rnn(x))


model = TeaClassifier()
slow = list(model.rnn.recurrent.parameters())
fast = [p for p in model.parameters() if all(p is not q for q in slow)]
optimizer = torch.optim.Adam([{"params": fast, "lr": 2e-3}, {"params": slow, "lr": 5e-4}])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
sum(p.numel() for p in model.parameters())


# %%
@torch.no_grad()
def test_accuracy():
    model.eval()
    return (model(x_test).argmax(1) == y_test).float().mean().item()


start = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    epoch_loss = 0.0
    order = torch.randperm(len(x_train))
    for pick in order.split(BATCH):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x_train[pick]), y_train[pick])
        loss.backward()
        nn.utils.clip_grad_norm_(fast, 1.0)
        optimizer.step()
        epoch_loss += loss.item() * len(pick)
    scheduler.step()
    print(f"epoch {epoch + 1:2d}  loss {epoch_loss / len(x_train):.4f}  test {test_accuracy():.3f}", flush=True)

# %%
with torch.no_grad():
    w = model.rnn.recurrent.weight
    print(f"largest departure from orthogonality {(w @ w.T - torch.eye(HIDDEN)).abs().max():.1e}")
print(f"total training seconds: {time.perf_counter() - start:.2f}")
