# /// clinic
# stratum = "placebo"
# domain = "recommender"
# ///
"""Which song next: bags of listened songs into a wide tower, sampled softmax over the batch."""

import time

import torch
import torch.nn.functional as F
from torch import nn


def closure_based_training(songs=20_000, dim=64, width=768, batch=512, bag=20):
    torch.manual_seed(8)
    table = nn.EmbeddingBag(songs, dim, mode="mean", sparse=True)
    tower = nn.Sequential(nn.Linear(dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, dim))
    target = nn.Embedding(songs, dim, sparse=True)
    sparse_opt = torch.optim.SGD([table.weight, target.weight], lr=0.1)
    dense_opt = torch.optim.SGD(tower.parameters(), lr=0.01, momentum=0.9)
    history = torch.randint(songs, (8192, bag))
    follow = (history[:, -1] * 7 + 3) % songs
    same = torch.arange(batch)

    def loss_of(pick):
        wanted = F.normalize(target(follow[pick]), dim=1)
        got = F.normalize(tower(table(history[pick])), dim=1)
        return F.cross_entropy(got @ wanted.T * 10, same)

    def update():
        pick = torch.randint(len(history), (batch,))
        loss = loss_of(pick)
        sparse_opt.zero_grad()
        dense_opt.zero_grad()
        loss.backward()
        sparse_opt.step()
        dense_opt.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate():
        return loss_of(torch.arange(batch)).item()

    return update, evaluate, batch


def main(steps=450, warm=10):
    update, evaluate, batch = closure_based_training()
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        loss = update()
        if step % 150 == 149:
            print(f"step {step + 1} loss {loss.item():.3f} check {evaluate():.3f}")
    print(f"{(steps - warm) * batch / (time.perf_counter() - start):.1f} listens/s")


if __name__ == "__main__":
    main()
