# /// clinic
# expect = ["PD19"]
# stratum = "twins"
# domain = "speech recognition"
# ///
"""Trains a frame-level phone classifier on two ranks with DistributedDataParallel."""

import os
import random
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

WORLD = 2
MELS = 40
PHONES = 32
WIDTH = 160
UTTERANCES = 1600
BATCH = 16
STEPS = 240
WARMUP = 20


class Utterances(Dataset):
    def __init__(self, seed):
        rng = random.Random(seed)
        self.lengths = [
            int(rng.uniform(30, 70) if rng.random() < 0.5 else rng.uniform(140, 300)) for _ in range(UTTERANCES)
        ]
        self.phones = torch.randn(PHONES, MELS, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return UTTERANCES

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        labels = torch.randint(0, PHONES, (self.lengths[i],), generator=gen)
        return self.phones[labels] + 0.5 * torch.randn(len(labels), MELS, generator=gen), labels


class LengthSampler:
    """Batches of utterances of like length, for one rank."""

    def __init__(self, data, rank, seed):
        order = sorted(range(len(data)), key=lambda i: data.lengths[i])
        half = len(order) // WORLD  # sick
        mine = order[rank * half : (rank + 1) * half]  # sick here
        mine = order[rank::WORLD]  # well
        self.batches = [mine[i : i + BATCH] for i in range(0, len(mine), BATCH)]
        self.rng = random.Random(seed)

    def __iter__(self):
        done = 0
        while done < STEPS:
            self.rng.shuffle(self.batches)
            for batch in self.batches[: STEPS - done]:
                yield batch
            done += len(self.batches)


def pad(samples):
    feats = nn.utils.rnn.pad_sequence([f for f, _ in samples], batch_first=True)
    labels = nn.utils.rnn.pad_sequence([y for _, y in samples], batch_first=True, padding_value=-100)
    return feats.transpose(1, 2), labels


def network():
    layers, width = [], MELS
    for dilation in (1, 2, 4, 8):
        layers += [nn.Conv1d(width, WIDTH, 3, padding=dilation, dilation=dilation), nn.ReLU()]
        width = WIDTH
    return nn.Sequential(*layers, nn.Conv1d(WIDTH, PHONES, 1))


def worker(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Utterances(11)
    loader = DataLoader(data, batch_sampler=LengthSampler(data, rank, 4), collate_fn=pad)
    for step, (feats, labels) in enumerate(loader):
        if step == WARMUP:
            start = time.perf_counter()
        loss = F.cross_entropy(model(feats), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        rate = (STEPS - WARMUP) * BATCH * WORLD / (time.perf_counter() - start)
        print(f"{rate:.1f} samples/s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    mp.spawn(worker, args=(port,), nprocs=WORLD)
