# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "messages by radio"
# ///
"""Sorts short messages of a fishing radio channel by what they are about.

Messages are made up from word lists; a small transformer reads them word by word.
"""

import math
import random
import time
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

random.seed(13)
np.random.seed(13)
torch.manual_seed(13)

TOPICS = ["weather", "catch", "engine", "harbour", "rescue", "chat"]
N_MESSAGES = 9600
BATCH_SIZE = 64
EPOCHS = 9
MAX_WORDS = 80


def make_messages(n):
    common = [f"w{i}" for i in range(1500)]
    weights = 1 / np.arange(1, 1501)
    weights /= weights.sum()
    special = {t: [f"{t}{i}" for i in range(60)] for t in range(len(TOPICS))}
    labels = np.random.randint(0, len(TOPICS), n)
    sizes = np.clip(np.random.lognormal(math.log(17), 0.33, n), 4, MAX_WORDS).astype(int)
    texts = []
    for label, size in zip(labels, sizes):
        words = [common[j] for j in np.random.choice(1500, size, p=weights)]
        # a few telling words, now and then one from another topic
        for j in random.sample(range(size), max(2, size // 8)):
            topic = label if random.random() < 0.85 else random.randrange(len(TOPICS))
            words[j] = random.choice(special[topic])
        texts.append(" ".join(words))
    return texts, labels.tolist()


class Vocab:
    def __init__(self, texts, min_count=2):
        counts = Counter(w for t in texts for w in t.split())
        words = ["<pad>", "<unk>"] + [w for w, c in counts.most_common() if c >= min_count]
        self.index = {w: i for i, w in enumerate(words)}

    def __len__(self):
        return len(self.index)

    def encode(self, text):
        return torch.tensor([self.index.get(w, 1) for w in text.split()])


class Messages(Dataset):
    def __init__(self, texts, labels, vocab):
        self.ids = [vocab.encode(t) for t in texts]
        self.labels = labels

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


def collate(rows):
    ids, labels = zip(*rows)
    return pad_sequence(ids, batch_first=True), torch.tensor(labels)


def plan_epoch(dataset, size):
    """The lists of indices of one epoch, new order each time."""
    order = torch.randperm(len(dataset)).tolist()
    order.sort(key=lambda i: len(dataset.ids[i]))  # well
    batches = [order[i : i + size] for i in range(0, len(order), size)]  # here
    random.shuffle(batches)
    return batches


class Reader(nn.Module):
    def __init__(self, n_words, n_classes, d=128, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(n_words, d, padding_idx=0)
        self.register_buffer("places", self.sinusoids(MAX_WORDS, d))
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.classify = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, n_classes))

    @staticmethod
    def sinusoids(length, d):
        pos = torch.arange(length).unsqueeze(1)
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(length, d)
        pe[:, 0::2] = torch.sin(pos * div)
        pe[:, 1::2] = torch.cos(pos * div)
        return pe

    def forward(self, ids):
        blank = ids == 0
        x = self.words(ids) * 2 + 0.3 * self.places[: ids.shape[1]]
        x = self.encoder(x, src_key_padding_mask=blank)
        keep = (~blank).unsqueeze(-1).float()
        return self.classify((x * keep).sum(1) / keep.sum(1))


def accuracy(model, dataset):
    model.eval()
    hits = 0
    with torch.no_grad():
        for ids, labels in DataLoader(dataset, batch_sampler=plan_epoch(dataset, 128), collate_fn=collate):
            hits += (model(ids).argmax(-1) == labels).sum().item()
    model.train()
    return hits / len(dataset)


texts, labels = make_messages(N_MESSAGES + 512)
vocab = Vocab(texts[:N_MESSAGES])
train_data = Messages(texts[:N_MESSAGES], labels[:N_MESSAGES], vocab)
valid_data = Messages(texts[N_MESSAGES:], labels[N_MESSAGES:], vocab)
print(len(vocab), "words,", len(train_data), "messages")

model = Reader(len(vocab), len(TOPICS))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
loss_fn = nn.CrossEntropyLoss()

n_seen = 0
t_start = time.perf_counter()
for epoch in range(EPOCHS):
    loader = DataLoader(train_data, batch_sampler=plan_epoch(train_data, BATCH_SIZE), collate_fn=collate)
    loss_sum = 0.0
    for ids, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(ids), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss_sum += loss.item() * len(y)
        n_seen += len(y)
    print("epoch", epoch, "loss", round(loss_sum / len(train_data), 4))
t_end = time.perf_counter()

print("valid accuracy", round(accuracy(model, valid_data), 4))
print(f"{n_seen / (t_end - t_start):.1f} samples/s")
