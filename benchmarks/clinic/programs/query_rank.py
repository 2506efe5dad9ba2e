# /// clinic
# stratum = "decoys"
# domain = "click-through"
# ///
"""Rank shop items for a query: bags of hashed words on both sides, dot product, in-batch negatives."""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

WORDS = 8_000
QUERY_WORDS, ITEM_WORDS = 8, 40


def click_log(pairs, gen):
    """Items are made of topics; a query is a handful of its item's words."""
    topic = torch.randint(0, 400, (pairs, 1), generator=gen)
    base = (topic * 9973) % WORDS
    item = (base + torch.randint(0, 900, (pairs, ITEM_WORDS), generator=gen) * 7) % WORDS
    which = torch.randint(0, ITEM_WORDS, (pairs, QUERY_WORDS), generator=gen)
    return item.gather(1, which), item


class Ranker(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, mode="mean")
        self.query = nn.Sequential(nn.Linear(width, 192), nn.ReLU(), nn.Linear(192, 96))
        self.item = nn.Sequential(nn.Linear(width, 192), nn.ReLU(), nn.Linear(192, 96))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, query, item):
        q = F.normalize(self.query(self.words(query)), dim=1)
        i = F.normalize(self.item(self.words(item)), dim=1)
        return self.scale.exp() * q @ i.T


def epochs(log, batch):
    queries, items = log
    while True:
        for pick in torch.randperm(len(queries)).split(batch):
            if len(pick) == batch:
                yield queries[pick], items[pick]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--lr", type=float, default=0.5)
    args = parser.parse_args()

    torch.manual_seed(12)
    log = click_log(args.batch * 80, torch.Generator().manual_seed(12))
    model = Ranker()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    target = torch.arange(args.batch)
    total, skip = torch.zeros(()), 10
    for step, (query, item) in enumerate(epochs(log, args.batch)):
        if step == skip:
            begun = time.perf_counter()
        if step == args.steps:
            break
        loss = F.cross_entropy(model(query, item), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
        if (step + 1) % 140 == 0:
            print(f"{step + 1}: {total.item() / 140:.3f}")
            total.zero_()
    print(f"{(args.steps - skip) * args.batch / (time.perf_counter() - begun):.1f} queries/s")


if __name__ == "__main__":
    main()
