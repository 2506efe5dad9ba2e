# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "sequence to sequence (recipe normalisation)"
# sizes = {VOCAB = [1100, 1300], LENGTH = [28, 32]}
# ///
"""Trains a GRU encoder-decoder that rewrites shorthand recipe lines into full steps."""

import random
import time

import torch
from torch import nn, optim

VOCAB = 1200
LENGTH = 30
BATCH = 48
EMBED = 64
HIDDEN = 128
N_PAIRS = 4000
N_STEPS = 130
WARMUP = 4
PAD, BOS, EOS = 0, 1, 2


def make_pairs(n, rng):
    """Each source word expands to one to three target words, by a fixed random dictionary."""
    words = range(3, VOCAB)
    expansion = {w: [rng.choice(words) for _ in range(rng.choice([1, 1, 2, 3]))] for w in words}
    weights = [1 / (rank + 5) for rank in range(len(words))]
    pairs = []
    for _ in range(n):
        src, trg = [], [BOS]
        for w in rng.choices(words, weights, k=LENGTH):
            if len(trg) + len(expansion[w]) + 1 > LENGTH:
                break
            src.append(w)
            trg += expansion[w]
        pairs.append((src + [EOS], trg + [EOS]))
    return pairs


def to_batch(pairs):
    def pad(seqs):
        return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in seqs], padding_value=PAD)

    return pad([s for s, _ in pairs]), pad([t for _, t in pairs])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED, padding_idx=PAD)
        self.rnn = nn.GRU(EMBED, HIDDEN, bidirectional=True)
        self.bridge = nn.Linear(2 * HIDDEN, HIDDEN)

    def forward(self, src):
        states, last = self.rnn(self.embed(src))
        hidden = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=1)))
        return states, hidden


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, EMBED, padding_idx=PAD)
        self.cell = nn.GRUCell(EMBED + HIDDEN, HIDDEN)
        self.out = nn.Linear(2 * HIDDEN + EMBED, VOCAB)

    def forward(self, token, hidden, keys, values, mask):
        emb = self.embed(token)
        score = torch.einsum("bh,sbh->bs", hidden, keys) / HIDDEN**0.5
        attn = score.masked_fill(mask, -1e9).softmax(dim=1)
        context = torch.einsum("bs,sbh->bh", attn, values)
        hidden = self.cell(torch.cat([emb, context], dim=1), hidden)
        return self.out(torch.cat([hidden, context, emb], dim=1)), hidden


class Seq2Seq(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.to_kv = nn.Linear(2 * HIDDEN, 2 * HIDDEN)

    def forward(self, src, trg, teacher_forcing_ratio=0.5):
        trg_len, batch_size = trg.shape
        states, hidden = self.encoder(src)
        keys, values = self.to_kv(states).chunk(2, dim=2)
        mask = (src == PAD).t()

        # position 0 is BOS and is skipped by the loss
        outputs = torch.zeros(trg_len, batch_size, VOCAB)  # sick
        outputs = [torch.zeros(batch_size, VOCAB)]  # well
        token = trg[0]
        for t in range(1, trg_len):
            output, hidden = self.decoder(token, hidden, keys, values, mask)
            outputs[t] = output  # sick here
            outputs.append(output)  # well
            teacher_force = random.random() < teacher_forcing_ratio
            token = trg[t] if teacher_force else output.argmax(1)
        return outputs  # sick
        return torch.stack(outputs)  # well


def evaluate(model, batch, criterion):
    model.eval()
    with torch.no_grad():
        src, trg = batch
        output = model(src, trg, 0.0)[1:]
        loss = criterion(output.reshape(-1, VOCAB), trg[1:].reshape(-1))
    model.train()
    return loss.item()


def main():
    random.seed(3)
    torch.manual_seed(3)
    pairs = make_pairs(N_PAIRS, random.Random(5))
    valid = to_batch(pairs[:BATCH])
    train = sorted(pairs[BATCH:], key=lambda p: len(p[0]))

    model = Seq2Seq()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    total = 0.0
    for step in range(N_STEPS + WARMUP):
        if step == WARMUP:
            start = time.perf_counter()
        i = random.randrange(0, len(train) - BATCH)
        src, trg = to_batch(train[i : i + BATCH])
        ratio = max(0.5, 1 - step / N_STEPS)
        output = model(src, trg, ratio)
        loss = criterion(output[1:].reshape(-1, VOCAB), trg[1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.detach()
        if (step + 1) % 30 == 0:
            print(f"step {step + 1} | train {total / 30:.3f} | valid {evaluate(model, valid, criterion):.3f}")
            total = 0.0
    print(f"{N_STEPS / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
