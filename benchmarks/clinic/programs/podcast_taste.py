# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "recommender"
# sizes = {SHOWS = [9000, 11000], BATCH = [250, 270]}
# ///
"""Next-episode recommendation: an attentive history encoder with sampled softmax, under Accelerate."""

import time

import numpy as np
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

SHOWS = 10000
BATCH = 256
HISTORY = 24
NEGATIVES = 32
DIM = 64
STEPS = 500
WARMUP = 10


def simulate_listeners(n, rng):
    """Listeners stick to a few topics; shows within a topic follow a power law."""
    topics = 60
    topic_of = rng.permutation(SHOWS) % topics
    members = [np.flatnonzero(topic_of == t) for t in range(topics)]
    logs = []
    for _ in range(n):
        liked = rng.integers(0, topics, size=2)
        picks = rng.integers(0, 2, size=HISTORY + 1)
        ranks = (rng.pareto(1.2, size=HISTORY + 1) * 8).astype(int)
        logs.append([members[liked[p]][r % len(members[liked[p]])] for p, r in zip(picks, ranks)])
    return np.asarray(logs, dtype=np.int64)


class Plays(Dataset):
    """(history, next show, negatives drawn by smoothed popularity)"""

    def __init__(self, logs, seed):
        self.logs = logs
        self.rng = np.random.RandomState(seed)
        counts = np.bincount(logs.ravel(), minlength=SHOWS) + 1.0
        self.popularity = counts**0.75 / (counts**0.75).sum()
        self.cdf = self.popularity.cumsum()  # well
        self.cdf /= self.cdf[-1]  # well

    def __len__(self):
        return len(self.logs)

    def __getitem__(self, i):
        row = self.logs[i]
        negatives = self.rng.choice(SHOWS, size=NEGATIVES, p=self.popularity)  # sick here
        negatives = self.cdf.searchsorted(self.rng.random_sample(NEGATIVES), side="right")  # well
        return row[:-1], row[-1], negatives


def collate(items):
    history, target, negatives = zip(*items)
    candidates = np.concatenate([np.asarray(target)[:, None], np.stack(negatives)], axis=1)
    return torch.from_numpy(np.stack(history)), torch.from_numpy(candidates)


class NextShow(nn.Module):
    def __init__(self, log_popularity):
        super().__init__()
        self.shows = nn.Embedding(SHOWS, DIM, sparse=True)
        nn.init.normal_(self.shows.weight, std=DIM**-0.5)
        self.place = nn.Parameter(0.02 * torch.randn(HISTORY, DIM))
        self.mix = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))
        self.norm = nn.LayerNorm(DIM)
        self.query = nn.Linear(DIM, DIM)
        self.score = nn.Linear(DIM, 1)
        self.register_buffer("log_popularity", log_popularity)

    def forward(self, history, candidates):
        h = self.shows(history) + self.place
        h = self.norm(h + self.mix(h))
        weight = self.score(torch.tanh(self.query(h))).softmax(dim=1)
        listener = (weight * h).sum(dim=1)
        logits = torch.einsum("bd,bkd->bk", listener, self.shows(candidates))
        # the usual correction for sampling by popularity
        return logits - self.log_popularity[candidates]


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    data = Plays(simulate_listeners(12000, np.random.default_rng(4)), seed=5)
    loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=collate)
    model = NextShow(torch.from_numpy(np.log(data.popularity)).float())
    dense = [p for name, p in model.named_parameters() if not name.startswith("shows")]
    slow = torch.optim.SparseAdam(list(model.shows.parameters()), lr=2e-3)
    fast = torch.optim.AdamW(dense, lr=1e-3)
    model, slow, fast, loader = accelerator.prepare(model, slow, fast, loader)

    step, recent = 0, []
    while step < STEPS + WARMUP:
        for history, candidates in loader:
            if step == WARMUP:
                start = time.perf_counter()
            logits = model(history, candidates)
            target = torch.zeros(len(history), dtype=torch.long)
            loss = F.cross_entropy(logits, target)
            slow.zero_grad()
            fast.zero_grad()
            accelerator.backward(loss)
            slow.step()
            fast.step()
            recent.append(loss.detach())
            step += 1
            if step % 50 == 0:
                accelerator.print(f"step {step}: loss {torch.stack(recent).mean().item():.4f}")
                recent.clear()
            if step == STEPS + WARMUP:
                break
    accelerator.print(f"{STEPS / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
