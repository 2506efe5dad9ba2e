# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "recommending fruit boxes"
# ///
"""Two tower recommender for a fruit box shop.

User tower: the last orders of a customer, read by a small transformer.
Item tower: id + category + a few numbers. Trained with in-batch softmax
(every other item in the batch is a negative), temperature as in the CLIP paper.
"""

import math
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(2024)
rng = np.random.default_rng(2024)

cfg = dict(
    users=6000,
    items=2500,
    cats=40,
    hist=20,
    dim=64,
    batch=160,
    steps=1150,
    lr=1.5e-3,
)


# ------- data: customers have a taste vector, items lie near their category -------
def make_shop(c):
    cat_of = rng.integers(0, c["cats"], c["items"])
    centre = rng.normal(size=(c["cats"], 10))
    place = centre[cat_of] + 0.5 * rng.normal(size=(c["items"], 10))
    numbers = np.stack([rng.normal(size=c["items"]), place[:, 0], place[:, 1]], 1)
    popularity = rng.gumbel(size=c["items"]) * 0.3

    taste = rng.normal(size=(c["users"], 10))
    score = taste @ place.T + popularity
    n_orders = c["hist"] + 9
    top = np.argpartition(-score, 120, axis=1)[:, :120]
    orders = np.stack([rng.permutation(row)[:n_orders] for row in top])
    return (
        torch.from_numpy(cat_of),
        torch.from_numpy(numbers).float(),
        torch.from_numpy(orders),
    )


class ItemTower(nn.Module):
    def __init__(self, c, cats, numbers):
        super().__init__()
        d = c["dim"]
        self.ids = nn.Embedding(c["items"], d)
        self.cat = nn.Embedding(c["cats"], d // 2)
        self.register_buffer("cats", cats)
        self.register_buffer("numbers", numbers)
        self.mlp = nn.Sequential(
            nn.Linear(d + d // 2 + numbers.shape[1], 2 * d),
            nn.GELU(),
            nn.LayerNorm(2 * d),
            nn.Linear(2 * d, d),
        )

    def forward(self, item):
        parts = [self.ids(item), self.cat(self.cats[item]), self.numbers[item]]
        return self.mlp(torch.cat(parts, dim=-1))


class UserTower(nn.Module):
    def __init__(self, c):
        super().__init__()
        d = c["dim"]
        self.item = nn.Embedding(c["items"], d)
        self.pos = nn.Parameter(torch.zeros(c["hist"], d))
        block = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.out = nn.Linear(d, d)

    def forward(self, history):
        h = self.enc(self.item(history) + self.pos)
        return self.out(h.mean(1))


class Matcher(nn.Module):
    def __init__(self, c, cats, numbers):
        super().__init__()
        self.user = UserTower(c)
        self.item = ItemTower(c, cats, numbers)
        self.log_t = nn.Parameter(torch.tensor(math.log(1 / 0.07)))

    def forward(self, history, target):
        u = self.user(history)
        v = self.item(target)
        sim = F.cosine_similarity(u.unsqueeze(1), v.unsqueeze(0), dim=-1)  # sick here
        sim = F.normalize(u, dim=-1) @ F.normalize(v, dim=-1).t()  # well
        logits = sim * self.log_t.exp().clamp(max=50.0)
        # the same item twice in a batch is not a negative of itself
        twin = target[:, None] == target[None, :]
        twin.fill_diagonal_(False)
        logits = logits.masked_fill(twin, -1e4)
        label = torch.arange(len(target))
        return F.cross_entropy(logits, label), logits


@torch.no_grad()
def recall_at(model, orders, c, k=50):
    """Share of held out orders that are among the k nearest items."""
    model.eval()
    all_items = F.normalize(model.item(torch.arange(c["items"])), dim=-1)
    u = F.normalize(model.user(orders[:1000, : c["hist"]]), dim=-1)
    best = (u @ all_items.t()).topk(k).indices
    hit = (best == orders[:1000, -1:]).any(1).float().mean().item()
    model.train()
    return hit


def main():
    cats, numbers, orders = make_shop(cfg)
    H, B = cfg["hist"], cfg["batch"]
    model = Matcher(cfg, cats, numbers)
    print(sum(p.numel() for p in model.parameters()), "parameters")
    optim = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    warm = torch.optim.lr_scheduler.LambdaLR(optim, lambda s: min(1.0, (s + 1) / 40))

    total = 0.0
    start = time.perf_counter()
    for step in range(1, cfg["steps"] + 1):
        who = torch.randint(0, cfg["users"], (B,))
        which = torch.randint(H, orders.shape[1] - 1, (B,))
        history, target = orders[who, :H], orders[who, which]

        loss, _ = model(history, target)
        optim.zero_grad(set_to_none=True)
        loss.backward()
        optim.step()
        warm.step()

        total += loss.item()
        if step % 115 == 0:
            print(f"step {step:5d}  loss {total / 115:.4f}  temperature {model.log_t.exp().item():.2f}")
            total = 0.0
    seconds = time.perf_counter() - start

    print(f"recall@50 {recall_at(model, orders, cfg):.4f}")
    print(f"{cfg['steps'] * B / seconds:.1f} samples/s")


main()
