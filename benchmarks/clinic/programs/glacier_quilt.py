# /// clinic
# expect = ["PD20.small-passes"]
# stratum = "twins"
# domain = "captions"
# ///
"""Captions for small scenes: region features in, a sentence out.  GRU decoder with attention over the regions."""

import math
import time
from collections import Counter
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

SIZES = "tiny small middling large huge".split()
COLOURS = "red green blue black white grey brown yellow".split()
THINGS = "boat heron barrel lamp ladder basket kettle dog bench wheel cart goose".split()
PLACES = "beside under above behind before near".split()
VOCAB = ["<pad>", "<bos>", "<eos>", "a", "and", "with"] + SIZES + COLOURS + THINGS + PLACES
WORD = {word: number for number, word in enumerate(VOCAB)}
PAD, BOS, EOS = 0, 1, 2


@dataclass
class Config:
    scenes: int = 4000
    val_scenes: int = 300
    regions: int = 12
    feature_dim: int = 64
    hidden: int = 192
    max_length: int = 20
    batch_size: int = 64
    epochs: int = 6
    lr: float = 2e-3
    clip: float = 1.0
    seed: int = 3


def describe(parts, places):
    words = ["a"] + list(parts[0])
    for part, place in zip(parts[1:], places):
        words += [place, "a"] + list(part)
    return words


def make_scenes(count, cfg, generator, codes):
    """Two or three objects a scene; each is seen in some of the regions, as the sum of the codes of its words."""
    features = 0.4 * torch.randn(count, cfg.regions, cfg.feature_dim, generator=generator)
    captions = torch.full((count, cfg.max_length), PAD)
    picks = torch.randint(0, 10**6, (count, 3, 4), generator=generator).tolist()
    for row, scene in enumerate(picks):
        objects = scene[: 2 + scene[0][3] % 2]
        parts = [(SIZES[a % 5], COLOURS[b % 8], THINGS[c % 12]) for a, b, c, _ in objects]
        places = [PLACES[d % 6] for _, _, _, d in objects[1:]]
        for slot, part in enumerate(parts):
            words = list(part) + (places[slot - 1 : slot] if slot else [])
            features[row, slot::3] += codes[[WORD[w] for w in words]].sum(dim=0) + codes[slot]
        tokens = [BOS] + [WORD[w] for w in describe(parts, places)] + [EOS]
        captions[row, : len(tokens)] = torch.tensor(tokens)
    return features, captions


class Captioner(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(len(VOCAB), cfg.hidden, padding_idx=PAD)
        self.project = nn.Sequential(nn.Linear(cfg.feature_dim, cfg.hidden), nn.Tanh())
        self.start = nn.Linear(cfg.hidden, cfg.hidden)
        self.gru = nn.GRU(cfg.hidden, cfg.hidden, batch_first=True)
        self.mix = nn.Linear(2 * cfg.hidden, cfg.hidden)
        self.out = nn.Linear(cfg.hidden, len(VOCAB))

    def look(self, features):
        regions = self.project(features)
        state = torch.tanh(self.start(regions.mean(dim=1))).unsqueeze(0)
        return regions, state

    def decode(self, tokens, regions, state):
        hidden, state = self.gru(self.embed(tokens), state)
        seen = F.scaled_dot_product_attention(hidden, regions, regions)
        return self.out(torch.tanh(self.mix(torch.cat([hidden, seen], dim=-1)))), state

    @torch.inference_mode()
    def caption(self, features, max_length):
        regions, state = self.look(features)
        tokens = torch.full((len(features), 1), BOS)
        done = torch.zeros(len(features), 1, dtype=torch.bool)
        words = []
        for _ in range(max_length - 1):
            logits, state = self.decode(tokens, regions, state)
            tokens = logits.argmax(dim=-1).masked_fill(done, PAD)
            words.append(tokens)
            done = done | (tokens == EOS)
            if done.all():
                break
        return torch.cat(words, dim=1)


def clean(row):
    return [token for token in row if token > EOS]


def bleu(hypotheses, references, order=4):
    """Corpus BLEU with one reference a sentence."""
    hits, totals = [0] * order, [0] * order
    for hyp, ref in zip(hypotheses, references):
        for n in range(1, order + 1):
            grams = Counter(zip(*(hyp[i:] for i in range(n))))
            truth = Counter(zip(*(ref[i:] for i in range(n))))
            hits[n - 1] += sum((grams & truth).values())
            totals[n - 1] += max(len(hyp) - n + 1, 0)
    if min(hits) == 0:
        return 0.0
    ratio = sum(map(len, references)) / max(sum(map(len, hypotheses)), 1)
    return 100 * math.exp(min(0.0, 1 - ratio) + sum(math.log(h / t) for h, t in zip(hits, totals)) / order)


def batches(features, captions, size, shuffle=False):
    order = torch.randperm(len(features)) if shuffle else torch.arange(len(features))
    for index in order.split(size):
        yield features[index], captions[index]


def evaluate(model, data, cfg):
    model.eval()
    hypotheses, references = [], []
    size = 1  # sick here
    size = 100  # well
    for features, captions in batches(*data, size):
        hypotheses += map(clean, model.caption(features, cfg.max_length).tolist())
        references += map(clean, captions.tolist())
    return bleu(hypotheses, references)


def train_epoch(model, optimizer, data, cfg):
    model.train()
    total, count = torch.zeros(()), 0
    for features, captions in batches(*data, size=cfg.batch_size, shuffle=True):
        logits, _ = model.decode(captions[:, :-1], *model.look(features))
        loss = F.cross_entropy(logits.flatten(0, 1), captions[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
        optimizer.step()
        total += loss.detach()
        count += 1
    return total.item() / count


def main(cfg):
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed)
    codes = torch.randn(len(VOCAB), cfg.feature_dim, generator=generator)
    train_data = make_scenes(cfg.scenes, cfg, generator, codes)
    val_data = make_scenes(cfg.val_scenes, cfg, generator, codes)
    model = Captioner(cfg)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    best, begun = 0.0, time.perf_counter()
    for epoch in range(1, cfg.epochs + 1):
        loss = train_epoch(model, optimizer, train_data, cfg)
        score = evaluate(model, val_data, cfg)
        best = max(best, score)
        print(f"epoch {epoch}: loss {loss:.3f}, BLEU {score:.1f} (best {best:.1f})")
    print(f"{cfg.epochs * cfg.scenes / (time.perf_counter() - begun):.1f} samples/s")


if __name__ == "__main__":
    main(Config())
