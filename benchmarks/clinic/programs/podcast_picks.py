# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "podcast recommendation"
# ///
"""Trains a neural collaborative filter that ranks podcast episodes for listeners (BPR loss, hit rate at 10)."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

N_LISTENERS = 60_000
N_EPISODES = 40_000
DIM = 64
BATCH = 2048
STEPS = 700
EVAL_EVERY = 100


def make_plays(n_plays, rng):
    """Listeners and episodes have topics; nine plays of ten stay within the listener's topic."""
    n_topics = 40
    listener_topic = rng.integers(0, n_topics, size=N_LISTENERS)
    by_topic = np.arange(N_EPISODES).reshape(n_topics, -1)
    popularity = rng.zipf(1.6, size=n_plays) % by_topic.shape[1]
    listeners = rng.integers(0, N_LISTENERS, size=n_plays)
    topics = listener_topic[listeners]
    stray = rng.random(n_plays) < 0.1
    topics[stray] = rng.integers(0, n_topics, size=stray.sum())
    return listeners, by_topic[topics, popularity]


class EpisodeRanker(nn.Module):
    def __init__(self, n_listeners, n_episodes, dim):
        super().__init__()
        self.listeners = nn.Embedding(n_listeners, dim)  # sick here
        self.listeners = nn.Embedding(n_listeners, dim, sparse=True)  # well
        self.episodes = nn.Embedding(n_episodes, dim)  # sick here
        self.episodes = nn.Embedding(n_episodes, dim, sparse=True)  # well
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, 256),
            nn.ReLU(),
            nn.Linear(256, 64),
            nn.ReLU(),
            nn.Linear(64, 1),
        )
        nn.init.normal_(self.listeners.weight, std=0.1)
        nn.init.normal_(self.episodes.weight, std=0.1)

    def score(self, listener_vec, episode_vec):
        joint = torch.cat([listener_vec, episode_vec], dim=-1)
        return self.mlp(joint).squeeze(-1) + (listener_vec * episode_vec).sum(dim=-1)

    def forward(self, listeners, episodes):
        """listeners (B,), episodes (B, K) -> scores (B, K)"""
        episode_vec = self.episodes(episodes)
        listener_vec = self.listeners(listeners).unsqueeze(1).expand_as(episode_vec)
        return self.score(listener_vec, episode_vec)


@torch.no_grad()
def hit_rate(model, listeners, episodes, negatives, k=10):
    model.eval()
    hits = 0
    for lo in range(0, len(listeners), 250):
        rows = slice(lo, lo + 250)
        candidates = torch.cat([episodes[rows, None], negatives[rows]], dim=1)
        top = model(listeners[rows], candidates).topk(k, dim=1).indices
        hits += (top == 0).any(dim=1).sum().item()
    model.train()
    return hits / len(listeners)


def batches(listeners, episodes, gen):
    n = len(listeners)
    while True:
        order = torch.randperm(n, generator=gen)
        for lo in range(0, n - BATCH + 1, BATCH):
            rows = order[lo : lo + BATCH]
            yield listeners[rows], episodes[rows]


def main():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    listeners, episodes = (torch.from_numpy(a) for a in make_plays(801_000, rng))
    held_out, train = slice(0, 1000), slice(1000, None)
    negatives = torch.randint(0, N_EPISODES, (1000, 99))

    model = EpisodeRanker(N_LISTENERS, N_EPISODES, DIM)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    gen = torch.Generator().manual_seed(1)
    stream = batches(listeners[train], episodes[train], gen)

    running, start = 0.0, None
    for step in range(1, STEPS + 1):
        who, liked = next(stream)
        other = torch.randint(0, N_EPISODES, liked.shape, generator=gen)
        scores = model(who, torch.stack([liked, other], dim=1))
        loss = F.softplus(scores[:, 1] - scores[:, 0]).mean()

        optimizer.zero_grad()
        loss.backward()  # here
        optimizer.step()  # here

        running += loss.item()
        if step % EVAL_EVERY == 0:
            rate10 = hit_rate(model, listeners[held_out], episodes[held_out], negatives)
            print(f"step {step} loss {running / EVAL_EVERY:.4f} hit@10 {rate10:.3f}")
            running = 0.0
        if step == 5:
            start = time.perf_counter()

    rate = (STEPS - 5) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
