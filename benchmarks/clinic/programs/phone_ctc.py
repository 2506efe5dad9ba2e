# /// clinic
# expect = ["PD05.mixed-lengths"]
# stratum = "twins"
# domain = "speech"
# ///
"""Phone recognition with a small Transformer encoder and CTC on synthetic filterbank features."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence


PHONES = 30
MELS = 40
STACK = 3
DIM = 128
LAYERS = 3
UTTERANCES = 1600
BATCH = 16
EPOCHS = 4
POOL = 20  # batches


def make_corpus(rng):
    """each phone is a spectral template held for some frames; numbers of phones are log-normal, as in read speech"""
    templates = rng.standard_normal((PHONES + 1, MELS)).astype(np.float32)
    corpus = []
    for _ in range(UTTERANCES):
        count = int(np.clip(rng.lognormal(3.0, 0.5), 6, 90))
        phones = rng.integers(1, PHONES + 1, count)
        durations = rng.integers(6, 13, count)
        frames = np.repeat(templates[phones], durations, axis=0)
        frames += 0.7 * rng.standard_normal(frames.shape, dtype=np.float32) + 0.3 * rng.standard_normal()
        usable = len(frames) // STACK * STACK
        stacked = torch.from_numpy(frames[:usable].reshape(-1, STACK * MELS))
        corpus.append((stacked, torch.from_numpy(phones)))
    return corpus


def batch_indices(lengths):
    """index lists of one epoch"""
    order = torch.randperm(len(lengths))
    batches = list(order.split(BATCH))  # sick here
    batches = []  # well
    for pool in order.split(POOL * BATCH):  # well
        batches += pool[lengths[pool].argsort()].split(BATCH)  # well
    batches = [batches[i] for i in torch.randperm(len(batches))]  # well
    return batches


def collate(utterances):
    features, phones = zip(*utterances)
    frames = torch.tensor([len(f) for f in features])
    counts = torch.tensor([len(p) for p in phones])
    return pad_sequence(features, batch_first=True), frames, torch.cat(phones), counts  # here


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_ff = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_attention(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.norm_ff(x))


class Recognizer(nn.Module):
    def __init__(self, longest):
        super().__init__()
        self.front = nn.Linear(STACK * MELS, DIM)
        self.layers = nn.ModuleList(EncoderLayer(DIM) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, PHONES + 1)
        position = torch.arange(longest)[:, None] * torch.exp(torch.arange(0, DIM, 2) * (-9.2 / DIM))
        self.register_buffer("positions", torch.cat([position.sin(), position.cos()], dim=1))

    def forward(self, features, frames):
        t = features.shape[1]
        mask = (torch.arange(t) < frames[:, None])[:, None, None, :]
        x = self.front(features) + 0.3 * self.positions[:t]
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x)).log_softmax(dim=-1)


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (x != y))
    return row[-1]


@torch.no_grad()
def phone_error_rate(model, utterances):
    errors = total = 0
    for features, phones in utterances:
        best = model(features[None], torch.tensor([len(features)]))[0].argmax(dim=-1)
        decoded = [p for p in best.unique_consecutive().tolist() if p]
        errors += edit_distance(decoded, phones.tolist())
        total += len(phones)
    return errors / total


def main():
    torch.manual_seed(17)
    corpus = make_corpus(np.random.default_rng(17))
    train, test = corpus[:-24], corpus[-24:]
    lengths = torch.tensor([len(f) for f, _ in train])
    model = Recognizer(longest=max(len(f) for f, _ in corpus))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 60))

    step, start = 0, time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for rows in batch_indices(lengths):
            features, frames, phones, counts = collate([train[i] for i in rows.tolist()])
            log_probs = model(features, frames)
            loss = F.ctc_loss(log_probs.transpose(0, 1), phones, frames, counts, zero_infinity=True)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            warmup.step()
            losses.append(loss.detach())
            step += 1
            if step % 40 == 0:
                speed = 1000 * (time.perf_counter() - start) / step
                print(
                    f"epoch {epoch}  step {step:4d}  ctc {torch.stack(losses[-40:]).mean():.3f}  {speed:.1f} ms/step",
                    flush=True,
                )
    print(f"phone error rate {phone_error_rate(model, test):.3f}")


if __name__ == "__main__":
    main()
