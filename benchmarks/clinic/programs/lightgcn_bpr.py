# /// clinic
# expect = ["PD10.sparse-by-coordinates"]
# stratum = "twins"
# domain = "recommenders"
# ///
"""LightGCN with the BPR loss on implicit feedback (synthetic listening log), full-graph propagation for each batch."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


USERS = 6000
ITEMS = 4000
INTERACTIONS = 200_000
DIM = 64
LAYERS = 2
BATCH = 4096
EPOCHS = 16
TOPK = 20


def make_log(rng, groups=12):
    """users of a taste group listen mostly to the items of that group; items have a popularity"""
    taste = rng.integers(0, groups, USERS)
    genre = rng.integers(0, groups, ITEMS)
    popularity = rng.pareto(1.5, ITEMS) + 0.1
    users = rng.integers(0, USERS, INTERACTIONS)
    items = np.empty(INTERACTIONS, dtype=np.int64)
    own = rng.random(INTERACTIONS) < 0.8
    for group in range(groups):
        rows = np.flatnonzero(own & (taste[users] == group))
        pool = np.flatnonzero(genre == group)
        items[rows] = rng.choice(pool, len(rows), p=popularity[pool] / popularity[pool].sum())
    rest = np.flatnonzero(~own)
    items[rest] = rng.choice(ITEMS, len(rest), p=popularity / popularity.sum())
    pairs = np.unique(users * ITEMS + items)
    rng.shuffle(pairs)
    held_out = len(pairs) // 10

    def split(p):
        return torch.from_numpy(np.stack([p // ITEMS, p % ITEMS]))

    return split(pairs[held_out:]), split(pairs[:held_out])


def normalized_adjacency(train):
    """D^-1/2 A D^-1/2 of the bipartite graph of users and items"""
    n = USERS + ITEMS
    users, items = train[0], train[1] + USERS
    index = torch.stack([torch.cat([users, items]), torch.cat([items, users])])
    degree = torch.bincount(index[0], minlength=n).clamp(min=1).float()
    values = (degree[index[0]] * degree[index[1]]).rsqrt()
    graph = torch.sparse_coo_tensor(index, values, (n, n))
    return graph.coalesce()  # sick here
    return graph.coalesce().to_sparse_csr()  # well


class LightGCN(nn.Module):
    def __init__(self, graph):
        super().__init__()
        self.graph = graph
        self.embedding = nn.Parameter(0.1 * torch.randn(USERS + ITEMS, DIM))

    def propagate(self):
        layer = self.embedding
        total = layer
        for _ in range(LAYERS):
            layer = torch.sparse.mm(self.graph, layer)  # here
            total = total + layer
        return total / (LAYERS + 1)

    def bpr_loss(self, users, positives, negatives, decay=1e-4):
        nodes = torch.cat([users, positives + USERS, negatives + USERS])
        final = self.propagate().index_select(0, nodes)
        user, positive, negative = final.chunk(3)
        margin = (user * (positive - negative)).sum(dim=1)
        raw = self.embedding.index_select(0, nodes)
        penalty = raw.square().sum() / len(users)
        return -F.logsigmoid(margin).mean() + decay * penalty


@torch.no_grad()
def recall_at_k(model, train, test, count=1000):
    final = model.propagate()
    scores = final[:count] @ final[USERS:].T
    seen = train[0] < count
    scores[train[0][seen], train[1][seen]] = float("-inf")
    top = scores.topk(TOPK, dim=1).indices
    relevant = torch.zeros(count, ITEMS, dtype=torch.bool)
    wanted = test[0] < count
    relevant[test[0][wanted], test[1][wanted]] = True
    hits = relevant.gather(1, top).sum(dim=1).float()
    total = relevant.sum(dim=1)
    return (hits[total > 0] / total[total > 0]).mean().item()


def main():
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    train, test = make_log(rng)
    pairs = train.shape[1]
    print(f"{pairs} interactions for training, {test.shape[1]} held out")

    model = LightGCN(normalized_adjacency(train))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, fused=True)
    step, start = 0, time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        order = torch.randperm(pairs)
        losses = []
        for rows in order.split(BATCH):
            users, positives = train[0, rows], train[1, rows]
            negatives = torch.randint(0, ITEMS, (len(rows),))
            loss = model.bpr_loss(users, positives, negatives)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            step += 1
        speed = 1000 * (time.perf_counter() - start) / step
        print(f"epoch {epoch}  step {step}  bpr {torch.stack(losses).mean():.4f}  {speed:.1f} ms/step", flush=True)
    print(f"recall@{TOPK} {recall_at_k(model, train, test):.4f}")


if __name__ == "__main__":
    main()
