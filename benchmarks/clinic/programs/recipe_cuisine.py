# /// clinic
# expect = ["PD14"]
# stratum = "twins"
# domain = "recipes"
# ///
"""Guesses a recipe's cuisine from its words, on top of (made up) pretrained word vectors."""

import pathlib
import random
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

TABLE_WORDS, DIM = 600_000, 64
VOCAB, CUISINES = 6_000, 12
WORDS = 48


def load_vectors(words, seed=0):
    """Vectors of the most frequent words; the table is sorted by frequency, as GloVe's is."""
    rng = np.random.default_rng(seed)
    table = torch.from_numpy(rng.standard_normal((TABLE_WORDS, DIM), dtype=np.float32))
    return table[:words]  # sick here
    return table[:words].clone()  # well


class Recipes(Dataset):
    """Words drawn from a Zipf law common to all, and from the cuisine's own pantry."""

    def __init__(self, count, seed):
        pantry = np.random.default_rng(99).integers(50, VOCAB, (CUISINES, 80))
        rng = np.random.default_rng(seed)
        self.cuisine = rng.integers(0, CUISINES, count)
        common = np.minimum(rng.zipf(1.3, (count, WORDS)), VOCAB - 1)
        own = pantry[self.cuisine[:, None], rng.integers(0, 80, (count, WORDS))]
        self.words = np.where(rng.random((count, WORDS)) < 0.65, common, own).astype(np.int64)

    def __len__(self):
        return len(self.cuisine)

    def __getitem__(self, i):
        return self.words[i], self.cuisine[i]


class CuisineNet(nn.Module):
    def __init__(self, vectors, width=128):
        super().__init__()
        self.embed = nn.Embedding.from_pretrained(vectors, freeze=True)
        self.lift = nn.Linear(vectors.shape[1], width)
        self.read = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.attend = nn.Linear(2 * width, 1)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, CUISINES))

    def forward(self, words):
        h, _ = self.read(F.gelu(self.lift(self.embed(words))))
        weight = self.attend(h).softmax(1)
        return self.head((weight * h).sum(1))


class Keeper:
    """The newest checkpoints of a run on machines that may be taken away at any minute."""

    def __init__(self, folder, every=15, keep=2):
        self.folder, self.every, self.keep = pathlib.Path(folder), every, keep
        self.kept = []

    def maybe_save(self, step, model, optimizer, schedule):
        if step % self.every:
            return
        path = self.folder / f"step{step:06d}.pt"
        state = {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "rng": torch.get_rng_state(),
        }
        torch.save(state, path)
        self.kept.append(path)
        while len(self.kept) > self.keep:
            self.kept.pop(0).unlink()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = sum((model(words).argmax(-1) == cuisine).sum().item() for words, cuisine in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    random.seed(1)
    torch.manual_seed(1)
    train = DataLoader(Recipes(7200, 1), 48, shuffle=True, drop_last=True)
    valid = DataLoader(Recipes(960, 2), 96)
    model = CuisineNet(load_vectors(VOCAB))
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=2e-3)
    epochs = 6
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train))
    keeper = Keeper(tempfile.mkdtemp(prefix="recipes"))
    step, began = 0, None
    for epoch in range(epochs):
        total = 0.0
        for words, cuisine in train:
            loss = F.cross_entropy(model(words), cuisine)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(trainable, 5.0)
            optimizer.step()
            schedule.step()
            total += loss.item()
            step += 1
            if step == 5:
                began = time.perf_counter()
            keeper.maybe_save(step, model, optimizer, schedule)
        print(f"epoch {epoch} loss {total / len(train):.3f} accuracy {evaluate(model, valid):.3f}", flush=True)
    rate = (step - 5) / (time.perf_counter() - began)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
