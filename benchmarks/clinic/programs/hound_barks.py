# /// clinic
# expect = ["PD19.late-rank"]
# stratum = "twins"
# domain = "truffle hound barks"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Which truffle does the hound announce? Recordings of single barks, of very different lengths.

    torchrun --nproc-per-node 2 hound_barks.py

Barks are sequences of 40-band frames. They are sorted by length so that a batch needs little padding, shared out
between the ranks, and the order of the batches is drawn anew in each epoch.
"""

import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BANDS = 40
FINDS = ["black winter", "burgundy", "white alba", "nothing"]


def bark(rng, label):
    """A bark is a row of yaps; pitch, rhythm and rasp depend on what the nose has found."""
    frames = int(np.clip(rng.lognormal(mean=4.5, sigma=0.85), 24, 600))
    t = np.arange(frames)
    pitch = 10.0 + 5.0 * label + rng.normal(0.0, 2.5)
    rhythm = 14.0 + 4.0 * label + rng.normal(0.0, 2.0)
    envelope = np.maximum(0.0, np.sin(2 * np.pi * t / rhythm + rng.uniform(0, 6))) ** 0.5
    centre = pitch + 2.0 * np.sin(2 * np.pi * t / (3.0 * rhythm))
    spectrum = np.exp(-0.5 * ((np.arange(BANDS)[None] - centre[:, None]) / 2.5) ** 2)
    noise = rng.standard_normal((frames, BANDS), dtype=np.float32)
    return torch.from_numpy((2.0 * spectrum * envelope[:, None] + 0.7 * noise).astype(np.float32))


def kennel(count, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(FINDS), size=count)
    return [bark(rng, label) for label in labels], torch.from_numpy(labels)


class BarkShard:
    """The barks of one rank, in batches of similar length."""

    def __init__(self, barks, labels, batch, rank, world, seed):
        lengths = np.array([len(b) for b in barks])
        order = np.argsort(lengths, kind="stable")
        share = len(order) // world
        mine = order[rank * share : (rank + 1) * share]  # sick here
        mine = order[: share * world][rank::world]  # well
        self.barks = barks
        self.labels = labels
        self.batches = [mine[i : i + batch] for i in range(0, len(mine) - batch + 1, batch)]
        self.seed = seed

    def epoch(self, number):
        rng = np.random.default_rng(self.seed + number)
        for i in rng.permutation(len(self.batches)):
            yield self.collate(self.batches[i])

    def collate(self, rows):
        chosen = [self.barks[i] for i in rows]
        frames = nn.utils.rnn.pad_sequence(chosen, batch_first=True)
        lengths = torch.tensor([len(b) for b in chosen])
        mask = torch.arange(frames.shape[1])[None] < lengths[:, None]
        return frames, mask, self.labels[rows]


class BarkNet(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(BANDS, width, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.GELU(),
        )
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.attend = nn.Linear(width, 1)
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, len(FINDS)))

    def forward(self, frames, mask):
        x = self.front(frames.transpose(1, 2)).transpose(1, 2)
        x, _ = self.rnn(x)
        score = self.attend(x).squeeze(2).masked_fill(~mask, -1e4)
        pooled = (score.softmax(dim=1).unsqueeze(2) * x).sum(dim=1)
        return self.out(pooled)


@torch.no_grad()
def evaluate(model, shard):
    model.eval()
    counts = torch.zeros(2)
    for frames, mask, labels in shard.epoch(0):
        right = (model(frames, mask).argmax(dim=1) == labels).sum()
        counts += torch.tensor([float(right), float(len(labels))])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1]).item()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--barks", type=int, default=2400)
    parser.add_argument("--test-barks", type=int, default=384)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=24)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=40)
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(args.seed)

    barks, labels = kennel(args.barks, args.seed)
    test_barks, test_labels = kennel(args.test_barks, args.seed + 1)
    train = BarkShard(barks, labels, args.batch, rank, world, args.seed)
    test = BarkShard(test_barks, test_labels, args.batch, rank, world, args.seed)

    net = BarkNet(args.width, args.dropout)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    total = args.epochs * len(train.batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=total)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)

    dist.barrier()
    start = time.perf_counter()
    for epoch in range(args.epochs):
        summed = 0.0
        for frames, mask, wanted in train.epoch(epoch):
            loss = criterion(model(frames, mask), wanted)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            summed += loss.item()
        accuracy = evaluate(net, test)
        if rank == 0:
            print(f"epoch {epoch}  loss {summed / len(train.batches):.3f}  test accuracy {accuracy:.3f}", flush=True)
            torch.save(net.state_dict(), os.path.join(os.getcwd(), "hound.pt"))
    dist.barrier()
    seconds = time.perf_counter() - start

    if rank == 0:
        rate = world * total * args.batch / seconds
        print(f"{rate:.1f} barks/s")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
