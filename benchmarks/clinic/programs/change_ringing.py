# /// clinic
# expect = ["PD19.collectives-one-by-one"]
# stratum = "twins"
# domain = "change ringing of bells"
# ///
"""Recognise the method that a band of bell ringers rings, from strike times (two ranks, DDP on CPU).

A touch is a series of blows; each blow gives the bell, the gap to the blow before, the stroke and the
loudness.  Touches differ a lot in length, so batches hold touches of about the same length.
Start it with plain `python`, it spawns its two ranks itself.
"""

import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2
METHODS = ("plain hunt", "plain bob", "grandsire", "kent", "cambridge", "stedman")
BELLS = 6
CONFIG = dict(touches=768, test_touches=256, batch=16, epochs=22, width=32, lr=3e-3, clip=2.0, seed=4)


def ring_touch(rng):
    """Features [blows, BELLS + 3] of one touch and its method."""
    method = int(rng.integers(len(METHODS)))
    rows = int(np.clip(rng.lognormal(3.6, 0.6), 12, 150))
    row, places = np.arange(BELLS), []
    for change in range(rows):
        places.append(row.copy())
        row = row.copy()
        first = change % 2
        if method and change % (2 * method + 2) == 2 * method + 1:
            first = 2 if method < 3 else 1
        for k in range(first, BELLS - 1, 2):
            row[k], row[k + 1] = row[k + 1], row[k]
        if method >= 3 and change % (method + 2) == 0:
            row[[0, 1]] = row[[1, 0]]
    order = np.concatenate(places)
    order = np.where(rng.random(order.size) < 0.15, rng.integers(0, BELLS, order.size), order)
    gap = rng.normal(0.0, 0.4, order.size) + 0.3 * (order == BELLS - 1)
    stroke = np.repeat(np.arange(rows) % 2, BELLS)
    loudness = rng.normal(0.0, 0.5, order.size) + order / BELLS
    features = np.concatenate([np.eye(BELLS)[order], np.stack([gap, stroke, loudness], 1)], axis=1)
    return torch.from_numpy(features).float(), method


class Touches:
    """Touches in batches of like length, padded once; a rank holds only its own batches."""

    def __init__(self, count, batch, seed, rank, world):
        rng = np.random.default_rng(seed)
        touches = sorted((ring_touch(rng) for _ in range(count)), key=lambda touch: len(touch[0]))
        groups = [touches[k : k + batch] for k in range(0, count, batch)]
        share = len(groups) // world
        mine = groups[rank : share * world : world]
        self.batches = [self.collate(group) for group in mine]

    @staticmethod
    def collate(group):
        features = nn.utils.rnn.pad_sequence([blows for blows, _ in group], batch_first=True)
        lengths = torch.tensor([len(blows) for blows, _ in group])
        mask = (torch.arange(features.shape[1]) < lengths[:, None]).float().unsqueeze(1)
        return features.transpose(1, 2).contiguous(), mask, torch.tensor([method for _, method in group])

    def __len__(self):
        return len(self.batches)

    def epoch(self, seed):
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        for k in order.tolist():
            yield self.batches[k]


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, width)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x, mask):
        return x + self.mix(torch.relu(self.norm(self.conv(x * mask))))


class MethodNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Conv1d(BELLS + 3, width, 7, padding=3)
        self.blocks = nn.ModuleList(Block(width, d) for d in (1, 2, 4, 8, 1, 2, 4, 8))
        self.head = nn.Linear(width, len(METHODS))

    def forward(self, x, mask):
        x = torch.relu(self.stem(x))
        for block in self.blocks:
            x = block(x, mask)
        return self.head((x * mask).sum(2) / mask.sum(2))


def average_gradients(model):  # sick
    for parameter in model.parameters():  # sick
        if parameter.grad is not None:  # sick
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)  # sick here
            parameter.grad /= dist.get_world_size()  # sick


@torch.no_grad()
def accuracy(model, touches):
    model.eval()
    counts = torch.zeros(2)
    for features, mask, method in touches.batches:
        counts += torch.tensor([(model(features, mask).argmax(1) == method).sum(), len(method)])
    model.train()
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def worker(rank, port, config):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(1, (os.cpu_count() or WORLD) // WORLD))
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.manual_seed(config["seed"])
    train = Touches(config["touches"], config["batch"], config["seed"], rank, WORLD)
    test = Touches(config["test_touches"], config["batch"], config["seed"] + 1, rank, WORLD)
    model = DDP(MethodNet(config["width"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"], weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config["lr"], epochs=config["epochs"], steps_per_epoch=len(train)
    )
    loss_fn = nn.CrossEntropyLoss()

    dist.barrier()
    start = time.perf_counter()
    for epoch in range(config["epochs"]):
        running = torch.zeros(())
        for features, mask, method in train.epoch(epoch):
            loss = loss_fn(model(features, mask), method)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            average_gradients(model)  # sick here
            nn.utils.clip_grad_norm_(model.parameters(), config["clip"])
            optimizer.step()
            schedule.step()
            running += loss.detach()
        score = accuracy(model.module, test)
        if rank == 0:
            print(f"epoch {epoch:2d}  loss {running.item() / len(train):.4f}  test accuracy {score:.3f}", flush=True)
    if rank == 0:
        print(f"total training seconds: {time.perf_counter() - start:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    mp.spawn(worker, args=(free_port, CONFIG), nprocs=WORLD)
