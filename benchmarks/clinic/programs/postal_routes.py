# /// clinic
# expect = ["PD19.buffers-broadcast"]
# stratum = "twins"
# domain = "postal sorting: parcels to delivery routes"
# ///
"""Sort parcels to delivery routes on two ranks.

A parcel is a handful of address tokens (street, quarter, shop sign, recipient ...).  The token vectors
come from an older, frozen model of the sorting office; only the reader on top of them is trained.
"""

import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

VOCABULARY = 90_000
VECTOR = 128
ROUTES = 48
TOKENS = 12


def office_vectors(seed=5):
    """Frozen token vectors: clusters of the routes with a lot of noise."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(ROUTES, VECTOR, generator=g)
    home = torch.randint(ROUTES, (VOCABULARY,), generator=g)
    vectors = torch.randn(VOCABULARY, VECTOR, generator=g)
    vectors.add_(centres[home], alpha=0.35)
    return vectors, home


def make_parcels(count, home, seed):
    """Token ids [count, TOKENS] and the route; about a third of the tokens belong to the route."""
    g = torch.Generator().manual_seed(seed)
    order = home.argsort()
    bounds = torch.searchsorted(home[order], torch.arange(ROUTES + 1))
    route = torch.randint(ROUTES, (count,), generator=g)
    low, high = bounds[route][:, None], bounds[route + 1][:, None]
    own = low + (torch.rand(count, TOKENS, generator=g) * (high - low)).long()
    other = torch.randint(VOCABULARY, (count, TOKENS), generator=g)
    tokens = torch.where(torch.rand(count, TOKENS, generator=g) < 0.35, order[own], other)
    return tokens, route


class ParcelReader(nn.Module):
    def __init__(self, vectors, width=192, depth=2):
        super().__init__()
        self.register_buffer("vectors", vectors, persistent=False)
        self.project = nn.Linear(VECTOR, width)
        self.query = nn.Parameter(0.05 * torch.randn(4, width))
        self.mixers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(4 * width), nn.Linear(4 * width, ROUTES))

    def forward(self, tokens):
        x = self.project(F.embedding(tokens, self.vectors))
        for mixer in self.mixers:
            x = x + mixer(x)
        weight = torch.softmax(x @ self.query.T, dim=1)
        pooled = weight.transpose(1, 2) @ x
        return self.head(pooled.flatten(1))


def shard(parcels, rank, world):
    return tuple(part[rank::world].contiguous() for part in parcels)


@torch.no_grad()
def evaluate(model, parcels):
    model.eval()
    tokens, route = parcels
    right = sum((model(t).argmax(1) == r).sum() for t, r in zip(tokens.split(512), route.split(512)))
    tally = torch.stack([right.float(), torch.tensor(float(len(route)))])
    dist.all_reduce(tally)
    return (tally[0] / tally[1]).item()


def sorter(rank, world, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(max(1, (os.cpu_count() or world) // world))
    torch.manual_seed(17)

    vectors, home = office_vectors()
    train = shard(make_parcels(args.parcels, home, seed=1), rank, world)
    test = shard(make_parcels(2048, home, seed=2), rank, world)

    reader = ParcelReader(vectors)
    model = DistributedDataParallel(reader)  # sick here
    model = DistributedDataParallel(reader, forward_sync_buffers=False)  # well
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05, fused=True)
    steps = args.epochs * (len(train[1]) // args.batch)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    shuffle = torch.Generator().manual_seed(100 + rank)

    start = time.perf_counter()
    for epoch in range(args.epochs):
        tick = time.perf_counter()
        model.train()
        total = torch.zeros(())
        batches = torch.randperm(len(train[1]), generator=shuffle).split(args.batch)
        for index in batches:
            logits = model(train[0][index])
            loss = F.cross_entropy(logits, train[1][index], label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.detach()
        accuracy = evaluate(reader, test)
        if rank == 0:
            print(
                f"epoch {epoch:2d}  loss {total.item() / len(batches):.3f}  routes right {accuracy:.3f}  "
                f"{time.perf_counter() - tick:.2f} s",
                flush=True,
            )
    if rank == 0:
        print(f"training took {time.perf_counter() - start:.1f} s")
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--batch", type=int, default=256, help="parcels per rank and step")
    parser.add_argument("--parcels", type=int, default=12288)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    mp.spawn(sorter, args=(2, free_port(), args), nprocs=2)
