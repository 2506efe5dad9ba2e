# /// clinic
# expect = ["PD05.mergeable-accumulation", "PD05.batch-too-small"]
# stratum = "twins"
# domain = "doll houses"
# ///
"""Which scale and which period is the doll house in an auction listing?

Text classification as in the transformer tutorial, with two heads. The listings come from the sale rooms' catalogues;
the words of a listing are the title, the condition report and the list of furniture that comes with it.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

SCALES = ["1:6", "1:12", "1:16", "1:24", "1:48"]
PERIODS = ["georgian", "victorian", "edwardian", "interwar", "midcentury", "modern"]
ROOMS = ["parlour", "nursery", "kitchen", "attic", "hall", "bedroom", "scullery", "bathroom", "conservatory"]
THINGS = ["settee", "dresser", "range", "cradle", "lamp", "mantel", "wallpaper", "staircase", "tea", "bath", "piano"]
STATES = ["chipped", "repainted", "original", "boxed", "missing", "foxed", "rewired", "sound", "wormed", "restored"]


@dataclass
class Config:
    listings: int = 2880
    listings_val: int = 320
    vocab: int = 3000
    dim: int = 96
    heads: int = 4
    layers: int = 2
    ff: int = 256
    dropout: float = 0.1
    max_words: int = 64
    epochs: int = 3
    batch_size: int = 4  # sick here
    accumulate: int = 8  # sick here
    batch_size: int = 32  # well
    accumulate: int = 1  # well
    batch_size_val: int = 64
    lr: float = 5e-4
    seed: int = 23


def write_listing(rng):
    """A made-up catalogue entry; the maker's marks and the furniture hint at scale and period."""
    scale, period = int(rng.integers(len(SCALES))), int(rng.integers(len(PERIODS)))
    words = ["doll", "house", "lot", str(rng.integers(1, 900))]
    for _ in range(int(rng.integers(11, 14))):
        words.append(str(rng.choice(ROOMS)))
        words.append(str(rng.choice(STATES)))
        draw = rng.random()
        if draw < 0.2:
            words.append(f"mark{scale}{rng.integers(0, 40)}")
        elif draw < 0.4:
            words.append(f"style{period}{rng.integers(0, 40)}")
        else:
            words.append(f"{rng.choice(THINGS)}{rng.integers(0, 60)}")
    return words, scale, period


class Vocabulary:
    def __init__(self, texts, size):
        counts = {}
        for words in texts:
            for word in words:
                counts[word] = counts.get(word, 0) + 1
        kept = sorted(counts, key=counts.get, reverse=True)[: size - 2]
        self.index = {word: i + 2 for i, word in enumerate(kept)}

    def encode(self, words):
        return [self.index.get(word, 1) for word in words]


class ListingDataset(Dataset):
    def __init__(self, entries, vocabulary, max_words):
        self.tokens = [torch.tensor(vocabulary.encode(words)[:max_words]) for words, _, _ in entries]
        self.labels = torch.tensor([[scale, period] for _, scale, period in entries])

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return self.tokens[i], self.labels[i]


def collate(samples):
    tokens, labels = zip(*samples)
    return nn.utils.rnn.pad_sequence(tokens, batch_first=True), torch.stack(labels)


class ListingClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.position = nn.Parameter(torch.randn(cfg.max_words, cfg.dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            cfg.dim, cfg.heads, cfg.ff, cfg.dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.dim)
        self.scale = nn.Linear(cfg.dim, len(SCALES))
        self.period = nn.Linear(cfg.dim, len(PERIODS))

    def forward(self, tokens):
        padding = tokens == 0
        x = self.embed(tokens) + self.position[: tokens.size(1)]
        x = self.norm(self.encoder(x, src_key_padding_mask=padding))
        keep = (~padding).unsqueeze(2).float()
        pooled = (x * keep).sum(1) / keep.sum(1)
        return self.scale(pooled), self.period(pooled)


def objective(outputs, labels):
    return F.cross_entropy(outputs[0], labels[:, 0]) + F.cross_entropy(outputs[1], labels[:, 1])


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right, total = torch.zeros(2), 0
    for tokens, labels in loader:
        scale, period = model(tokens)
        right += (torch.stack([scale.argmax(1), period.argmax(1)], dim=1) == labels).sum(0)
        total += len(labels)
    model.train()
    return (right / total).tolist()


def main():
    cfg = Config()
    set_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    entries = [write_listing(rng) for _ in range(cfg.listings + cfg.listings_val)]
    train_entries, val_entries = entries[: cfg.listings], entries[cfg.listings :]
    vocabulary = Vocabulary([words for words, _, _ in train_entries], cfg.vocab)
    train_set = ListingDataset(train_entries, vocabulary, cfg.max_words)
    val_set = ListingDataset(val_entries, vocabulary, cfg.max_words)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=cfg.accumulate)
    model = ListingClassifier(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    val_loader = DataLoader(val_set, batch_size=cfg.batch_size_val, collate_fn=collate)
    model, optimizer, train_loader, val_loader = accelerator.prepare(model, optimizer, train_loader, val_loader)
    accelerator.print(f"{len(train_set)} listings, {len(vocabulary.index)} words")

    seen = 0
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        running = torch.zeros(())
        for tokens, labels in train_loader:
            with accelerator.accumulate(model):
                loss = objective(model(tokens), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            running += loss.detach() * len(labels)
            seen += len(labels)
        scale, period = evaluate(model, val_loader)
        mean = running.item() / len(train_set)
        accelerator.print(f"epoch {epoch + 1}  loss {mean:.4f}  scale acc {scale:.3f}  period acc {period:.3f}")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} listings/s")


if __name__ == "__main__":
    main()
