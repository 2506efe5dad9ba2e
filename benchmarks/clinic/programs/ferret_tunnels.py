# /// clinic
# expect = ["PD19.collectives-one-by-one"]
# stratum = "twins"
# domain = "ferret tunnels"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Where is the ferret? Graph network over the nodes of a tunnel system (RFID gates, thermopiles, microphones).

Two ranks with gloo. Data parallel by hand, as the group did it since torch 0.4 on the old MPI cluster:
    torchrun --nproc-per-node 2 train.py
"""

import math
import os
import time
from random import Random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors  # well

NODES = 40
FEATURES = 10
HIDDEN = 96
LAYERS = 4
BATCH = 48
EPOCHS = 5
RECORDS = 4800


class Partition:
    """Dataset-like object, but only access a subset of it."""

    def __init__(self, data, index):
        self.data = [part[index] for part in data]

    def __len__(self):
        return len(self.data[0])

    def batches(self, size, rng=None):
        order = list(range(len(self)))
        if rng is not None:
            rng.shuffle(order)
        for i in range(0, len(order) - size + 1, size):
            index = torch.as_tensor(order[i : i + size])
            yield [part[index] for part in self.data]


class DataPartitioner:
    """Partitions a dataset into different chunks."""

    def __init__(self, data, sizes, seed=1234):
        rng = Random()
        rng.seed(seed)
        indexes = list(range(len(data[0])))
        rng.shuffle(indexes)
        self.data, self.partitions = data, []
        for frac in sizes:
            part_len = int(frac * len(data[0]))
            self.partitions.append(torch.as_tensor(indexes[:part_len]))
            indexes = indexes[part_len:]

    def use(self, partition):
        return Partition(self.data, self.partitions[partition])


def dig_tunnels(seed=4):
    """Adjacency of a random tree with a few cross tunnels, rows normalised."""
    rng = np.random.RandomState(seed)
    adj = np.eye(NODES, dtype=np.float32)
    for node in range(1, NODES):
        other = rng.randint(max(0, node - 4), node)
        adj[node, other] = adj[other, node] = 1
    for a, b in rng.randint(0, NODES, (8, 2)):
        adj[a, b] = adj[b, a] = 1
    return torch.from_numpy(adj / adj.sum(1, keepdims=True))


def observe(adj, n, seed):
    """Sensor readings at each node after a walk of the ferret, and the node where it is now."""
    rng = np.random.RandomState(seed)
    steps = adj.numpy()
    heat = np.zeros((n, NODES), dtype=np.float32)
    place = rng.randint(0, NODES, n)
    gates = np.zeros((n, NODES), dtype=np.float32)
    for _ in range(6):
        heat *= 0.6
        heat[np.arange(n), place] += 1
        passed = rng.uniform(size=n) < 0.5
        gates[np.arange(n)[passed], place[passed]] += 1
        place = (rng.uniform(size=(n, 1)) > steps[place].cumsum(1)).sum(1).clip(0, NODES - 1)
    heat[np.arange(n), place] += 0.7
    warm = heat @ steps.T
    mix = rng.normal(0, 1, (2, FEATURES - 1)).astype(np.float32)
    feats = np.stack([warm, warm @ steps.T], -1) @ mix + rng.normal(0, 0.3, (n, NODES, FEATURES - 1))
    feats = np.concatenate([feats, gates[..., None]], -1).astype(np.float32)
    return [torch.from_numpy(feats), torch.from_numpy(place.astype(np.int64))]


class TunnelLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.own = nn.Linear(dim, dim)
        self.neigh = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, adj):
        around = torch.matmul(adj, h)
        message = F.relu(self.own(h) + self.neigh(around))
        return self.norm(h + torch.sigmoid(self.gate(around)) * message)


class FerretNet(nn.Module):
    def __init__(self, adj):
        super().__init__()
        self.register_buffer("adj", adj)
        self.inp = nn.Linear(FEATURES, HIDDEN)
        self.place = nn.Parameter(torch.randn(NODES, HIDDEN) * 0.1)
        self.layers = nn.ModuleList([TunnelLayer(HIDDEN) for _ in range(LAYERS)])
        self.out = nn.Linear(HIDDEN, 1)

    def forward(self, x):
        h = self.inp(x) + self.place
        for layer in self.layers:
            h = layer(h, self.adj)
        return self.out(h).squeeze(-1)


def broadcast_parameters(model):
    for param in model.parameters():
        dist.broadcast(param.data, src=0)


def average_gradients(model):
    """Gradient averaging."""
    size = float(dist.get_world_size())
    for param in model.parameters():  # sick here
        dist.all_reduce(param.grad.data, op=dist.ReduceOp.SUM)  # sick here
        param.grad.data /= size  # sick
    grads = [param.grad.data for param in model.parameters()]  # well
    flat = _flatten_dense_tensors(grads)  # well
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)  # well
    flat /= size  # well
    for grad, mean in zip(grads, _unflatten_dense_tensors(flat, grads)):  # well
        grad.copy_(mean)  # well


def validate(model, part):
    model.eval()
    hits = torch.zeros(2)
    with torch.no_grad():
        for x, y in part.batches(BATCH):
            hits += torch.tensor([(model(x).argmax(1) == y).sum().item(), float(len(y))])
    dist.all_reduce(hits)
    return (hits[0] / hits[1]).item()


def run(rank, size):
    torch.manual_seed(1234)
    adj = dig_tunnels()
    shares = [1.0 / size] * size
    train_set = DataPartitioner(observe(adj, RECORDS, seed=5), shares).use(rank)
    valid_set = DataPartitioner(observe(adj, 480, seed=6), shares).use(rank)
    model = FerretNet(adj)
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    num_batches = math.floor(len(train_set) / float(BATCH))
    rng = Random(100 + rank)
    dist.barrier()
    seen, began = 0, time.time()
    for epoch in range(EPOCHS):
        model.train()
        epoch_loss = 0.0
        for x, y in train_set.batches(BATCH, rng):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            seen += size * len(y)
        accuracy = validate(model, valid_set)
        if rank == 0:
            print("Rank", rank, ", epoch", epoch, ":", epoch_loss / num_batches, "found", round(accuracy, 3))
            torch.save(model.state_dict(), "ferretnet.pt")
    return seen / (time.time() - began)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    rate = run(dist.get_rank(), int(os.environ["WORLD_SIZE"]))
    if dist.get_rank() == 0:
        print(f"{rate:.1f} samples/s")
    dist.destroy_process_group()
