# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "machine translation"
# ///
"""Trains a small sequence-to-sequence transformer on a toy language pair on two processes."""

import os
import random
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Sampler

WORLD = 2
PAIRS = 8192
VOCAB = 400
PAD, BOS, EOS = 0, 1, 2
SHORTEST, LONGEST = 6, 48
DIM, HEADS, LAYERS = 96, 4, 2
BATCH = 16
STEPS = 220
WARMUP = 20


class Corpus(Dataset):
    """Sentence pairs, short ones first."""

    def __init__(self):
        rng = random.Random(9)
        lengths = sorted(rng.randint(SHORTEST, LONGEST) for _ in range(PAIRS))
        self.source = [[rng.randrange(3, VOCAB) for _ in range(n)] for n in lengths]
        self.target = [[3 + (7 * w) % (VOCAB - 3) for w in reversed(s)] for s in self.source]

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        return self.source[i] + [EOS], [BOS] + self.target[i] + [EOS]


class LengthBatches(Sampler):
    """Batches of neighbours in length, in an order that all processes share."""

    def __init__(self, size, batch, rank, world, seed):
        keep = size // (batch * world) * batch
        order = list(range(keep * world))
        mine = order[rank * keep : (rank + 1) * keep]  # sick here
        mine = order[rank::world]  # well
        self.batches = [mine[i : i + batch] for i in range(0, keep, batch)]
        self.seed, self.epoch = seed, 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.epoch += 1
        yield from random.Random(self.seed + self.epoch).sample(self.batches, len(self.batches))


def padded(rows):
    width = max(map(len, rows))
    return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])


def collate(pairs):
    source, target = zip(*pairs)
    return padded(source), padded(target)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.places = nn.Embedding(LONGEST + 2, DIM)
        self.body = nn.Transformer(DIM, HEADS, LAYERS, LAYERS, 4 * DIM, 0.0, batch_first=True)
        self.out = nn.Linear(DIM, VOCAB)

    def embed(self, ids):
        return self.words(ids) + self.places.weight[: ids.size(1)]

    def forward(self, source, target):
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        blank = source == PAD
        h = self.body(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            src_key_padding_mask=blank,
            memory_key_padding_mask=blank,
        )
        return self.out(h)


def endless(loader):
    while True:
        yield from loader


def work(rank, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    corpus = Corpus()
    sampler = LengthBatches(len(corpus), BATCH, rank, WORLD, seed=1)
    loader = DataLoader(corpus, batch_sampler=sampler, collate_fn=collate)
    model = DDP(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98), fused=True)
    for step, (source, target) in zip(range(WARMUP + STEPS), endless(loader)):
        if step == WARMUP:
            start = time.perf_counter()
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rate = STEPS / (time.perf_counter() - start)
    if rank == 0:
        print(f"{rate:.1f} steps/s")
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(work, args=(free_port(),), nprocs=WORLD)
