# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "kite festivals"
# allow = ["PD03.per-sample-indexing"]
# ///
# %% [markdown]
# # Kite festivals: what should the app propose next?
# Visitors of forty festivals tapped on workshops, flights and stalls.  Two towers (visitor with recent taps, offer)
# trained with in-batch negatives; hit rate at 10 among the offers of the held out day.

# %%
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.retrieval import RetrievalHitRate

CFG = dict(
    visitors=80_000,
    offers=3_000,
    taps=120_000,
    recent=6,
    dim=32,
    tower=256,
    batch=512,
    epochs=3,
    lr=2e-3,
    temperature=0.1,
    seed=21,
)
set_seed(CFG["seed"])
rng = np.random.default_rng(CFG["seed"])

# %% [markdown]
# ## Taps
# A visitor has a leaning (stunt kites, cellular, children's workshops, ...) and a wind they like to fly in.

# %%
styles = ["stunt", "cellular", "rokkaku", "parafoil", "fighter", "miniature", "windsock", "workshop"]
offers = pd.DataFrame(
    {
        "style": rng.integers(0, len(styles), CFG["offers"]),
        "field": rng.integers(0, 40, CFG["offers"]),
        "wind": rng.gamma(4.0, 1.2, CFG["offers"]),
        "minutes": rng.choice([15, 30, 45, 90], CFG["offers"]),
    }
)
visitors = pd.DataFrame(
    {
        "leaning": rng.integers(0, len(styles), CFG["visitors"]),
        "field": rng.integers(0, 40, CFG["visitors"]),
        "age": rng.integers(5, 80, CFG["visitors"]),
    }
)
by_style = [np.flatnonzero(offers["style"] == s) for s in range(len(styles))]
who = rng.integers(0, CFG["visitors"], CFG["taps"])
style = np.where(rng.random(CFG["taps"]) < 0.7, visitors["leaning"].to_numpy()[who], rng.integers(0, 8, CFG["taps"]))
what = np.empty(CFG["taps"], dtype=np.int64)
for s, pool in enumerate(by_style):
    mine = style == s
    what[mine] = pool[(rng.power(0.5, mine.sum()) * len(pool)).astype(int)]
taps = pd.DataFrame({"visitor": who, "offer": what, "minute": rng.integers(0, 3 * 24 * 60, CFG["taps"])})
taps = taps.sort_values(["visitor", "minute"], ignore_index=True)
for back in range(1, CFG["recent"] + 1):
    taps[f"tap_{back}"] = taps.groupby("visitor")["offer"].shift(back).fillna(-1).astype(int) + 1
taps["held"] = taps["minute"] > 2.8 * 24 * 60
print(taps.groupby("held").size().to_string())

# %%
recent_columns = [f"tap_{back}" for back in range(1, CFG["recent"] + 1)]
offer_facts = torch.tensor(
    np.column_stack([np.eye(len(styles))[offers["style"]], offers["wind"] / 5, offers["minutes"] / 60]),
    dtype=torch.float32,
)


def as_dataset(frame):
    age = torch.tensor(visitors["age"].to_numpy()[frame["visitor"]] / 40.0 - 1, dtype=torch.float32)
    return TensorDataset(
        torch.tensor(frame["visitor"].to_numpy()),
        torch.tensor(frame[recent_columns].to_numpy()),
        age[:, None],
        torch.tensor(frame["offer"].to_numpy()),
    )


train_loader = DataLoader(as_dataset(taps[~taps["held"]]), batch_size=CFG["batch"], shuffle=True, drop_last=True)
held_loader = DataLoader(as_dataset(taps[taps["held"]].head(2048)), batch_size=CFG["batch"])

# %% [markdown]
# ## Two towers


# %%
def tower(width_in):
    return nn.Sequential(
        nn.Linear(width_in, CFG["tower"]),
        nn.LayerNorm(CFG["tower"]),
        nn.GELU(),
        nn.Linear(CFG["tower"], CFG["tower"]),
        nn.GELU(),
        nn.Linear(CFG["tower"], 64),
    )


class Proposer(nn.Module):
    def __init__(self):
        super().__init__()
        self.visitor = nn.Embedding(CFG["visitors"], CFG["dim"])  # sick here
        self.visitor = nn.Embedding(CFG["visitors"], CFG["dim"], sparse=True)  # well
        self.offer = nn.Embedding(CFG["offers"] + 1, CFG["dim"], padding_idx=0)
        self.visitor_tower = tower(2 * CFG["dim"] + 1)
        self.offer_tower = tower(CFG["dim"] + offer_facts.size(1))
        self.register_buffer("facts", offer_facts)
        nn.init.normal_(self.visitor.weight, std=0.05)

    def embed_visitors(self, visitor, recent, age):
        known = (recent > 0).sum(1, keepdim=True).clamp(min=1)
        history = self.offer(recent).sum(1) / known
        return F.normalize(self.visitor_tower(torch.cat([self.visitor(visitor), history, age], 1)), dim=1)

    def embed_offers(self, offer):
        return F.normalize(self.offer_tower(torch.cat([self.offer(offer + 1), self.facts[offer]], 1)), dim=1)

    def forward(self, visitor, recent, age, offer):
        scores = self.embed_visitors(visitor, recent, age) @ self.embed_offers(offer).T / CFG["temperature"]
        same = offer[:, None] == offer[None]
        same.fill_diagonal_(False)
        return F.cross_entropy(scores.masked_fill(same, -1e4), torch.arange(len(offer), device=offer.device))


# %% [markdown]
# ## Training

# %%
accelerator = Accelerator(cpu=True)
model = Proposer()
optimizers = [torch.optim.Adam(model.parameters(), lr=CFG["lr"])]  # sick here
rest = [p for name, p in model.named_parameters() if name != "visitor.weight"]  # well
optimizers = [torch.optim.Adam(rest, lr=CFG["lr"])]  # well
optimizers.append(torch.optim.SparseAdam([model.visitor.weight], lr=CFG["lr"]))  # well
total = CFG["epochs"] * len(train_loader)
schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, total) for o in optimizers]
model, train_loader, held_loader, *optimizers = accelerator.prepare(model, train_loader, held_loader, *optimizers)


@torch.no_grad()
def hit_rate():
    model.eval()
    metric = RetrievalHitRate(top_k=10)
    catalogue = model.embed_offers(torch.arange(CFG["offers"]))
    for n, (visitor, recent, age, offer) in enumerate(held_loader):
        scores = model.embed_visitors(visitor, recent, age)[:64] @ catalogue.T
        wanted = F.one_hot(offer[:64], CFG["offers"]).bool()
        rows = (torch.arange(len(scores)) + 1000 * n)[:, None].expand_as(scores)
        metric.update(scores.flatten(), wanted.flatten(), indexes=rows.flatten())
    model.train()
    return metric.compute().item()


log = []
began = time.perf_counter()
for epoch in range(CFG["epochs"]):
    losses = []
    for visitor, recent, age, offer in train_loader:
        loss = model(visitor, recent, age, offer)
        accelerator.backward(loss)
        for optimizer, schedule in zip(optimizers, schedules):
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    log.append({"epoch": epoch, "loss": np.mean(losses), "hit@10": hit_rate()})
seconds = time.perf_counter() - began

# %%
print(pd.DataFrame(log).round(4).to_string(index=False))
rate = total * CFG["batch"] / seconds
print(f"{rate:.1f} samples/s")
