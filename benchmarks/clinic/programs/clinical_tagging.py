# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "clinical notes, entity tagging"
# launcher = ["torchrun", "--nproc-per-node", "2"]
# ///
"""Trains a bidirectional LSTM tagger for drug and dosage mentions in clinical notes on two ranks."""

import argparse
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

TAGS = ["O", "B-DRUG", "I-DRUG", "B-DOSE", "I-DOSE", "B-ROUTE", "B-FREQ", "I-FREQ"]
PAD = 0


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sentences", type=int, default=4096)
    p.add_argument("--vocab", type=int, default=6000)
    p.add_argument("--embed", type=int, default=96)
    p.add_argument("--hidden", type=int, default=112)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def make_corpus(n, vocab, seed):
    """Sentences of log-normal length whose tags depend on the token and its left neighbour."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(3.2, 0.8, n), 4, 120).astype(int)
    emission = rng.integers(0, len(TAGS), vocab)
    tokens, tags = [], []
    for length in lengths:
        ids = rng.zipf(1.3, length) % (vocab - 1) + 1
        left = np.concatenate([[0], ids[:-1]])
        tokens.append(torch.from_numpy(ids.astype(np.int64)))
        tags.append(torch.from_numpy((emission[ids] + (left % 7 == 0)) % len(TAGS)).long())
    return lengths, tokens, tags


def build_batches(indices, tokens, tags, batch_size):
    """Neighbouring sentences of the length order share a batch, so that little is padded."""
    batches = []
    for start in range(0, len(indices) - batch_size + 1, batch_size):
        chunk = indices[start : start + batch_size]
        x = nn.utils.rnn.pad_sequence([tokens[i] for i in chunk], batch_first=True, padding_value=PAD)
        y = nn.utils.rnn.pad_sequence([tags[i] for i in chunk], batch_first=True, padding_value=-100)
        batches.append((x, y))
    return batches


class Tagger(nn.Module):
    def __init__(self, vocab, embed, hidden, n_tags):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embed, padding_idx=PAD)
        self.dropout = nn.Dropout(0.2)
        self.lstm = nn.LSTM(embed, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, n_tags)

    def forward(self, tokens):
        x = self.dropout(self.embedding(tokens))
        x, _ = self.lstm(x)
        return self.out(self.dropout(x))


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    lengths, tokens, tags = make_corpus(args.sentences, args.vocab, args.seed)
    order = np.argsort(lengths, kind="stable")
    per_rank = len(order) // world
    mine = order[rank * per_rank : (rank + 1) * per_rank]  # sick here
    mine = order[rank::world][:per_rank]  # well
    batches = build_batches(mine, tokens, tags, args.batch_size)

    model = DistributedDataParallel(Tagger(args.vocab, args.embed, args.hidden, len(TAGS)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    total = args.epochs * len(batches)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=total)

    step, started = 0, None
    for epoch in range(args.epochs):
        shuffled = np.random.default_rng(args.seed + epoch).permutation(len(batches))
        for b in shuffled:
            x, y = batches[b]
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step == 5:
                started = time.perf_counter()
            if rank == 0 and step % 64 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    dist.barrier()
    elapsed = time.perf_counter() - started
    if rank == 0:
        print(f"{(step - 5) / elapsed:.2f} steps/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
