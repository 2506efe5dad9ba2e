# /// clinic
# expect = ["PD10.python-between-steps", "PD10.python-work"]
# stratum = "twins"
# domain = "recommenders"
# ///
"""NeuMF on implicit feedback (synthetic catalogue), leave-one-out evaluation with HR@10 / NDCG@10.

Follows He et al., "Neural Collaborative Filtering": a GMF branch and an MLP branch over separate embeddings,
binary cross entropy on observed interactions and NUM_NG sampled negatives for each of them.
"""

import time

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn


NUM_USERS, NUM_ITEMS = 2000, 2600
PER_USER = 26
NUM_NG = 4
FACTORS = 32
LAYERS = (128, 64, 32)
BATCH = 4096
EPOCHS = 28
TOPK = 10


def make_interactions(rng):
    """Each user draws items from a softmax over taste * item factors, plus popularity."""
    taste = rng.normal(size=(NUM_USERS, 8)).astype(np.float32)
    items = rng.normal(size=(NUM_ITEMS, 8)).astype(np.float32)
    popularity = rng.gumbel(scale=0.8, size=NUM_ITEMS).astype(np.float32)
    scores = taste @ items.T + popularity
    scores += rng.gumbel(size=scores.shape).astype(np.float32)
    liked = np.argpartition(-scores, PER_USER, axis=1)[:, :PER_USER]
    rng.permuted(liked, axis=1, out=liked)
    held_out = liked[:, 0]
    users = np.repeat(np.arange(NUM_USERS), PER_USER - 1)
    return users, liked[:, 1:].reshape(-1), held_out


class NCFData:
    """Positives stay fixed, negatives are redrawn for every epoch by ng_sample()."""

    def __init__(self, users, items, num_ng):
        self.users, self.items, self.num_ng = users, items, num_ng
        self.train_mat = sp.dok_matrix((NUM_USERS, NUM_ITEMS), dtype=np.float32)
        for u, i in zip(users.tolist(), items.tolist()):
            self.train_mat[u, i] = 1.0
        self.seen = self.train_mat.tocsr().toarray() > 0

    def ng_sample(self):
        ng_users, ng_items = [], []  # sick
        for u in self.users:  # sick
            for _ in range(self.num_ng):  # sick here
                j = np.random.randint(NUM_ITEMS)  # sick
                while (u, j) in self.train_mat:  # sick
                    j = np.random.randint(NUM_ITEMS)  # sick
                ng_users.append(u)  # sick
                ng_items.append(j)  # sick
        ng_users, ng_items = np.array(ng_users), np.array(ng_items)  # sick
        ng_users = np.repeat(self.users, self.num_ng)  # well
        ng_items = np.random.randint(NUM_ITEMS, size=len(ng_users))  # well
        clash = np.flatnonzero(self.seen[ng_users, ng_items])  # well
        while len(clash):  # well
            ng_items[clash] = np.random.randint(NUM_ITEMS, size=len(clash))  # well
            clash = clash[self.seen[ng_users[clash], ng_items[clash]]]  # well
        labels = np.zeros(len(self.users) + len(ng_users), dtype=np.float32)
        labels[: len(self.users)] = 1.0
        return (
            torch.from_numpy(np.concatenate([self.users, ng_users])),
            torch.from_numpy(np.concatenate([self.items, ng_items])),
            torch.from_numpy(labels),
        )


class NeuMF(nn.Module):
    def __init__(self, factors, layers):
        super().__init__()
        self.user_gmf = nn.Embedding(NUM_USERS, factors)
        self.item_gmf = nn.Embedding(NUM_ITEMS, factors)
        self.user_mlp = nn.Embedding(NUM_USERS, factors)
        self.item_mlp = nn.Embedding(NUM_ITEMS, factors)
        blocks, width = [], 2 * factors
        for out in layers:
            blocks += [nn.Linear(width, out), nn.ReLU()]
            width = out
        self.mlp = nn.Sequential(*blocks)
        self.predict = nn.Linear(factors + width, 1)
        for table in (self.user_gmf, self.item_gmf, self.user_mlp, self.item_mlp):
            nn.init.normal_(table.weight, std=0.01)

    def forward(self, user, item):
        gmf = self.user_gmf(user) * self.item_gmf(item)
        mlp = self.mlp(torch.cat([self.user_mlp(user), self.item_mlp(item)], dim=-1))
        return self.predict(torch.cat([gmf, mlp], dim=-1)).squeeze(-1)


@torch.no_grad()
def evaluate(model, held_out, seen, rng, num_users=400, num_neg=99):
    model.eval()
    users = rng.choice(NUM_USERS, num_users, replace=False)
    negatives = rng.integers(NUM_ITEMS, size=(num_users, num_neg))
    known = seen[users[:, None], negatives] | (negatives == held_out[users][:, None])
    candidates = np.concatenate([held_out[users][:, None], negatives], axis=1)
    u = torch.from_numpy(np.repeat(users, num_neg + 1))
    scores = model(u, torch.from_numpy(candidates.reshape(-1))).view(num_users, -1)
    scores[:, 1:].masked_fill_(torch.from_numpy(known), -torch.inf)
    rank = (scores[:, 1:] > scores[:, :1]).sum(1).float()
    hit = (rank < TOPK).float()
    model.train()
    return hit.mean().item(), (hit / torch.log2(rank + 2)).mean().item()


def main():
    np.random.seed(7)
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    users, items, held_out = make_interactions(rng)
    data = NCFData(users, items, NUM_NG)
    model = NeuMF(FACTORS, LAYERS)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.BCEWithLogitsLoss()

    for epoch in range(EPOCHS):
        started = time.time()
        user, item, label = data.ng_sample()
        order = torch.randperm(len(user))
        for step, index in enumerate(order.split(BATCH)):
            optimizer.zero_grad()
            loss = criterion(model(user[index], item[index]), label[index])
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}", flush=True)
        hr, ndcg = evaluate(model, held_out, data.seen, rng)
        print(f"epoch {epoch}: HR@{TOPK} {hr:.3f} NDCG@{TOPK} {ndcg:.3f} ({time.time() - started:.1f} s)", flush=True)


if __name__ == "__main__":
    main()
