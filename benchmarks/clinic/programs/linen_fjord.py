# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "speech"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Trains a phone recogniser of convolutions and attention on utterances of different lengths, on two ranks."""

import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MELS = 40
PHONES = 30
UTTERANCES = 1400
BATCH = 16
EPOCHS = 3
CHANNELS = 64
HEADS = 4
IGNORE = -100


def make_utterances(seed=0):
    """Phones of a few frames each; every phone has its own mean spectrum, to which noise is added."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(150), 0.9, UTTERANCES), 40, 900).astype(int)
    total = int(lengths.sum())
    phones = np.repeat(rng.integers(0, PHONES, total // 4), rng.integers(4, 12, total // 4))[:total]
    means = rng.normal(0, 1, (PHONES, MELS)).astype(np.float32)
    frames = means[phones] + rng.normal(0, 1.5, (total, MELS)).astype(np.float32)
    cuts = lengths.tolist()
    return torch.from_numpy(frames).split(cuts), torch.from_numpy(phones).split(cuts)


def make_batches(utterances):
    """Numbers of utterances in groups of similar length, so that there is little padding."""
    order = sorted(range(len(utterances)), key=lambda i: len(utterances[i]))
    return [order[i : i + BATCH] for i in range(0, len(order), BATCH)]


def collate(frames, phones, batch):
    x = nn.utils.rnn.pad_sequence([frames[i] for i in batch], batch_first=True)
    y = nn.utils.rnn.pad_sequence([phones[i] for i in batch], batch_first=True, padding_value=IGNORE)
    return x.transpose(1, 2).contiguous(), y


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        layers, width = [], MELS
        for _ in range(4):
            layers += [nn.Conv1d(width, CHANNELS, 5, padding=2), nn.ReLU()]
            width = CHANNELS
        self.body = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(CHANNELS)
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.mix = nn.Linear(CHANNELS, CHANNELS)
        self.head = nn.Linear(CHANNELS, PHONES)

    def forward(self, x):
        x = self.body(x).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return self.head(x).transpose(1, 2)


def accuracy(model, frames, phones, batches):
    """Share of frames whose phone is right, over the batches of all ranks."""
    model.eval()
    counts = torch.zeros(2)
    with torch.no_grad():
        for batch in batches:
            x, y = collate(frames, phones, batch)
            known = y != IGNORE
            counts[0] += (model(x).argmax(1)[known] == y[known]).sum()
            counts[1] += known.sum()
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)

    frames, phones = make_utterances()
    held = 64
    batches = make_batches(frames[held:])
    batches = batches[: len(batches) // world * world]
    batches = [[i + held for i in batch] for batch in batches]
    share = len(batches) // world
    mine = batches[rank * share : (rank + 1) * share]  # sick here
    mine = batches[rank::world]  # well
    held_batches = make_batches(frames[:held])[rank::world]

    model = DistributedDataParallel(Recogniser())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    criterion = nn.CrossEntropyLoss(ignore_index=IGNORE)

    seen = 0
    began = time.perf_counter()
    for epoch in range(EPOCHS):
        shuffle = torch.Generator().manual_seed(100 + epoch)
        running = torch.zeros(())
        for number in torch.randperm(share, generator=shuffle).tolist():
            x, y = collate(frames, phones, mine[number])
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            running += loss.detach()
            seen += len(x) * world
        if rank == 0:
            print(f"epoch {epoch}: loss {running.item() / share:.4f}")
    spent = time.perf_counter() - began

    right = accuracy(model, frames, phones, held_batches)
    if rank == 0:
        print(f"held-out frames right: {right:.3f}")
        print(f"{seen / spent:.1f} samples/s")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
