# /// clinic
# expect = ["PD10.whole-sort"]
# stratum = "twins"
# domain = "retrieval"
# ///
"""Trains a next-item retriever for a small draper's catalogue with a rank-weighted softmax loss."""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

N_ITEMS, DIM, HISTORY = 2000, 96, 16
BATCH, EPOCHS = 256, 8


def make_data(count, gen):
    """Shoppers with a taste in a latent space: a history and the item that they took next."""
    items = torch.randn(N_ITEMS, 12, generator=gen)
    popularity = 0.6 * torch.randn(N_ITEMS, generator=gen)
    hist, nxt = [], []
    for _ in range(0, count, 2000):
        taste = torch.randn(2000, 12, generator=gen)
        p = (1.1 * taste @ items.T + popularity).softmax(1)
        drawn = torch.multinomial(p, HISTORY + 1, replacement=False, generator=gen)
        hist.append(drawn[:, :-1])
        nxt.append(drawn[:, -1])
    return torch.cat(hist)[:count], torch.cat(nxt)[:count]


class ShuffledBatches:
    """Index batches of a reshuffled range, the rest dropped."""

    def __init__(self, count, size, seed):
        self.count, self.size = count, size
        self.gen = torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.count // self.size

    def __iter__(self):
        order = torch.randperm(self.count, generator=self.gen)
        return iter(order[: len(self) * self.size].split(self.size))


class ShopperTower(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.history = nn.EmbeddingBag(N_ITEMS, dim, mode="mean")
        self.mix = nn.Sequential(
            nn.Linear(dim, hidden),
            nn.LayerNorm(hidden),
            nn.SiLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden),
            nn.SiLU(inplace=True),
            nn.Linear(hidden, dim),
        )
        nn.init.normal_(self.history.weight, std=0.1)

    def forward(self, hist):
        x = self.history(hist)
        return x + self.mix(x)


class Retriever(nn.Module):
    def __init__(self, dim=DIM, hidden=512):
        super().__init__()
        self.shopper = ShopperTower(dim, hidden)
        self.items = nn.Parameter(torch.randn(N_ITEMS, dim) * 0.1)
        self.bias = nn.Parameter(torch.zeros(N_ITEMS))

    def forward(self, hist):
        return torch.addmm(self.bias, self.shopper(hist), self.items.t())


class RankWeightedSoftmax(nn.Module):
    """Cross-entropy in which a query counts by the WARP weight of its positive, 1 + 1/2 + ... + 1/rank.

    Weights are scaled to a mean of one in each batch; a running mean reciprocal rank is kept for the log.
    """

    def __init__(self, n_items, strength=0.5, decay=0.98):
        super().__init__()
        harmonic = torch.arange(1, n_items + 1, dtype=torch.float64).reciprocal().cumsum(0)
        self.register_buffer("harmonic", harmonic.float())
        self.register_buffer("mrr", torch.zeros(()))
        self.strength, self.decay = strength, decay

    @torch.no_grad()
    def ranks(self, scores, target):
        """Place of the target in each row, from 0."""
        order = scores.argsort(dim=1, descending=True)  # sick here
        return (order == target[:, None]).int().argmax(dim=1)  # sick
        return (scores > scores.gather(1, target[:, None])).sum(dim=1)  # well

    def forward(self, scores, target):
        rank = self.ranks(scores, target)
        weight = self.harmonic[rank]
        weight = 1 - self.strength + self.strength * weight / weight.mean()
        self.mrr.lerp_((rank + 1.0).reciprocal().mean(), 1 - self.decay)
        return (weight * F.cross_entropy(scores, target, reduction="none")).mean()


@torch.no_grad()
def recall(model, hist, nxt, k=20):
    model.eval()
    hits = 0
    for h, y in zip(hist.split(500), nxt.split(500)):
        hits += (model(h).topk(k, dim=1).indices == y[:, None]).any(1).sum().item()
    model.train()
    return hits / len(nxt)


def main():
    torch.manual_seed(3)
    hist, nxt = make_data(22000, torch.Generator().manual_seed(4))
    n_train = 20000
    batches = ShuffledBatches(n_train, BATCH, seed=5)
    model = Retriever()
    criterion = RankWeightedSoftmax(N_ITEMS)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS * len(batches))

    seen, began = 0, time.perf_counter()
    for epoch in range(EPOCHS):
        running = torch.zeros(())
        for idx in batches:
            loss = criterion(model(hist[idx]), nxt[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            running += loss.detach()
            seen += len(idx)
        print(f"epoch {epoch}: loss {running.item() / len(batches):.3f}, mrr {criterion.mrr.item():.4f}")
    took = time.perf_counter() - began

    print(f"recall@20 {recall(model, hist[n_train:], nxt[n_train:]):.4f}")
    print(f"{seen / took:.1f} samples/s")


if __name__ == "__main__":
    main()
