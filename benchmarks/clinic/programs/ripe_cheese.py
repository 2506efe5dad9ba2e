# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "kitchens of recipes"
# ///
"""Guesses the kitchen that a recipe comes from, from the recipe's words."""

import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

KITCHENS = 8
RECIPES = 3200
WORDS = 900
WIDTH = 96
BATCH = 32
EPOCHS = 4


def write_recipes(count, seed=11):
    """Recipes as texts: common words for all kitchens, some of their own for each."""
    rng = np.random.default_rng(seed)
    words = [f"w{n}" for n in range(WORDS)]
    own = rng.permutation(WORDS).reshape(KITCHENS + 1, -1)
    texts, labels = [], []
    for _ in range(count):
        kitchen = int(rng.integers(KITCHENS))
        length = int(np.clip(rng.lognormal(3.4, 0.6), 8, 240))
        common = rng.random(length) < 0.75
        chosen = np.where(common, rng.choice(own[-1], length), rng.choice(own[kitchen], length))
        texts.append(" ".join(words[w] for w in chosen))
        labels.append(kitchen)
    return texts, labels


class Recipes(Dataset):
    def __init__(self, texts, labels):
        known = {w: n + 1 for n, w in enumerate(sorted({w for t in texts for w in t.split()}))}
        self.rows = [torch.tensor([known[w] for w in t.split()]) for t in texts]
        self.labels = labels
        self.vocabulary = len(known) + 1

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], self.labels[i]


def collate(items):
    rows, labels = zip(*items)
    return pad_sequence(rows, batch_first=True), torch.tensor(labels)


def draw_batches(rows):  # well
    order = torch.randperm(len(rows)).tolist()  # well
    parts = [order[i : i + 25 * BATCH] for i in range(0, len(order), 25 * BATCH)]  # well
    pools = [sorted(part, key=lambda n: len(rows[n])) for part in parts]  # well
    chosen = [p[j : j + BATCH] for p in pools for j in range(0, len(p), BATCH)]  # well
    random.shuffle(chosen)  # well
    return chosen  # well


class Taster(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, KITCHENS)

    def forward(self, ids):
        blank = ids == 0
        x = self.encoder(self.embed(ids), src_key_padding_mask=blank)
        keep = (~blank).unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(1) / keep.sum(1))


def main():
    random.seed(0)
    torch.manual_seed(0)
    data = Recipes(*write_recipes(RECIPES))
    model = Taster(data.vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=7e-4)
    loss_fn = nn.CrossEntropyLoss()

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        loader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=collate)  # sick here
        loader = DataLoader(data, batch_sampler=draw_batches(data.rows), collate_fn=collate)  # well
        total, right = torch.zeros(()), torch.zeros(())
        for ids, targets in loader:
            logits = model(ids)
            loss = loss_fn(logits, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(targets)
            right += (logits.detach().argmax(1) == targets).sum()
            seen += len(targets)
        print(f"epoch {epoch}: loss {total.item() / len(data):.3f}, accuracy {right.item() / len(data):.3f}")
    elapsed = time.perf_counter() - began
    print(f"{seen / elapsed:.1f} samples/s")


if __name__ == "__main__":
    main()
