# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "Morse key timings"
# ///
"""Tell telegraph operators apart by their "fist": the rhythm of key-down and key-up times in Morse traffic.

Each message is a sequence of marks; a mark carries the time the key was down, the silence after it and whether the
decoder took it for a dit or a dah. A small transformer reads the message and names the operator.
"""

import math
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import Sampler  # well


@dataclass
class Config:
    operators: int = 24
    messages: int = 2880
    held_out: int = 320
    marks_median: float = 62.0
    marks_spread: float = 0.5
    marks_limit: int = 360
    width: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.0
    batch_size: int = 32
    epochs: int = 5
    lr: float = 1.5e-3
    weight_decay: float = 0.05
    seed: int = 11


class Messages(Dataset):
    """Synthetic traffic: every operator has a speed, a weighting of dahs, a jitter and a drift over the message."""

    def __init__(self, cfg: Config, count: int, rng: np.random.Generator, style: dict):
        self.items = []
        for _ in range(count):
            who = int(rng.integers(cfg.operators))
            n = int(np.clip(rng.lognormal(math.log(cfg.marks_median), cfg.marks_spread), 12, cfg.marks_limit))
            dah = rng.random(n) < 0.46
            unit = style["unit"][who] * (1 + style["drift"][who] * np.linspace(0, 1, n))
            down = unit * np.where(dah, style["weight"][who], 1.0) * rng.lognormal(0, style["jitter"][who], n)
            gap = unit * rng.choice([1.0, 3.0, 7.0], n, p=[0.62, 0.27, 0.11])
            gap = gap * style["spacing"][who] * rng.lognormal(0, style["jitter"][who], n)
            marks = np.stack([np.log(down), np.log(gap), dah.astype(np.float32)], 1).astype(np.float32)
            self.items.append((torch.from_numpy(marks), who))
        self.lengths = [len(marks) for marks, _ in self.items]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class LengthPools(Sampler):  # well
    def __init__(self, lengths, batch_size, shuffle, pool=30):  # well
        self.lengths, self.batch_size, self.shuffle, self.pool = lengths, batch_size, shuffle, pool  # well

    def __len__(self):  # well
        return math.ceil(len(self.lengths) / self.batch_size)  # well

    def __iter__(self):  # well
        order = list(range(len(self.lengths)))  # well
        if self.shuffle:  # well
            random.shuffle(order)  # well
        span = self.pool * self.batch_size  # well
        batches = []  # well
        for at in range(0, len(order), span):  # well
            part = sorted(order[at : at + span], key=self.lengths.__getitem__)  # well
            batches += [part[b : b + self.batch_size] for b in range(0, len(part), self.batch_size)]  # well
        if self.shuffle:  # well
            random.shuffle(batches)  # well
        yield from batches  # well


def collate(rows):
    longest = max(len(marks) for marks, _ in rows)
    x = torch.zeros(len(rows), longest, rows[0][0].shape[1])
    pad = torch.ones(len(rows), longest, dtype=torch.bool)
    for i, (marks, _) in enumerate(rows):
        x[i, : len(marks)] = marks
        pad[i, : len(marks)] = False
    return x, pad, torch.tensor([who for _, who in rows])


def make_loader(messages: Messages, cfg: Config, train: bool) -> DataLoader:
    return DataLoader(messages, batch_size=cfg.batch_size, shuffle=train, collate_fn=collate)  # sick here
    pools = LengthPools(messages.lengths, cfg.batch_size, train)  # well
    return DataLoader(messages, batch_sampler=pools, collate_fn=collate)  # well


class FistReader(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.inlet = nn.Linear(3, cfg.width)
        place = torch.arange(cfg.marks_limit)[:, None] * torch.exp(-torch.arange(0, cfg.width, 2) * 9.2 / cfg.width)
        self.register_buffer("place", torch.cat([place.sin(), place.cos()], 1))
        layer = nn.TransformerEncoderLayer(
            cfg.width, cfg.heads, 2 * cfg.width, cfg.dropout, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(2 * cfg.width, cfg.operators)

    def forward(self, x, pad):
        h = self.inlet(x) + self.place[: x.shape[1]]
        h = self.norm(self.body(h, src_key_padding_mask=pad))
        keep = (~pad)[..., None]
        mean = (h * keep).sum(1) / keep.sum(1)
        peak = h.masked_fill(~keep, -1e4).amax(1)
        return self.head(torch.cat([mean, peak], 1))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = seen = 0
    for x, pad, who in loader:
        right += (model(x, pad).argmax(1) == who).sum().item()
        seen += len(who)
    model.train()
    return right / seen


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    style = {
        "unit": rng.uniform(0.045, 0.09, cfg.operators),
        "weight": rng.uniform(2.5, 3.7, cfg.operators),
        "spacing": rng.uniform(0.85, 1.35, cfg.operators),
        "jitter": rng.uniform(0.06, 0.2, cfg.operators),
        "drift": rng.uniform(-0.15, 0.15, cfg.operators),
    }
    train = make_loader(Messages(cfg, cfg.messages, rng, style), cfg, train=True)
    val = make_loader(Messages(cfg, cfg.held_out, rng, style), cfg, train=False)

    model = FistReader(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=cfg.epochs * len(train))

    seen = 0
    start = time.perf_counter()
    for epoch in range(cfg.epochs):
        total = 0.0
        for x, pad, who in train:
            loss = F.cross_entropy(model(x, pad), who, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += loss.detach()
            seen += len(who)
        print(f"epoch {epoch}: loss {total.item() / len(train):.3f}, held-out accuracy {accuracy(model, val):.3f}")
    rate = seen / (time.perf_counter() - start)
    print(f"{rate:.1f} messages/s")


if __name__ == "__main__":
    main()
