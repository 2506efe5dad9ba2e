# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "graphs"
# ///
"""A graph transformer that tells families of random graphs apart.

Attention between two nodes is biased by how far apart they are, with a learned strength for each head (as in Graphormer).

    python train.py --layers 3 --hidden 48
"""

import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.sparse.csgraph import shortest_path
from torch.utils.data import DataLoader, TensorDataset

FAMILIES = ("uniform", "geometric", "ring", "blocks")


def get_args():
    p = argparse.ArgumentParser(description="graph classification")
    p.add_argument("--graphs", type=int, default=512)
    p.add_argument("--nodes", type=int, default=96)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--hidden", type=int, default=48)
    p.add_argument("--decay", type=float, default=2.0, help="hops over which closeness falls to 1/e")
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def random_graph(family, n):
    """Symmetric 0/1 adjacency of about four edges per node."""
    dice = np.random.rand(n, n)
    if family == "uniform":
        adj = dice < 4 / n
    elif family == "geometric":
        xy = np.random.rand(n, 2)
        adj = ((xy[:, None] - xy[None]) ** 2).sum(-1) < 4 / (np.pi * n)
    elif family == "ring":
        gap = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
        adj = (np.minimum(gap, n - gap) <= 2) & (dice < 0.9) | (dice < 0.2 / n)
    else:
        block = np.random.randint(0, 4, n)
        adj = dice < np.where(block[:, None] == block[None], 12 / n, 0.8 / n)
    adj = np.triu(adj, 1)
    return adj | adj.T


def build_dataset(args):
    degrees, biases, labels = [], [], []
    for i in range(args.graphs):
        adj = random_graph(FAMILIES[i % len(FAMILIES)], args.nodes)
        hops = shortest_path(adj, method="D", unweighted=True, directed=False)
        degrees.append(adj.sum(1).clip(max=15))
        biases.append(np.exp(-hops / args.decay))
        labels.append(i % len(FAMILIES))
    degree = torch.from_numpy(np.stack(degrees))
    closeness = torch.from_numpy(np.stack(biases))  # sick here
    closeness = torch.from_numpy(np.stack(biases)).float()  # well
    return TensorDataset(degree, closeness, torch.tensor(labels))


class AverageMeter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


class GraphAttention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.scale = heads, (hidden // heads) ** -0.5
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.strength = nn.Parameter(torch.linspace(0.5, 2.0, heads).view(1, heads, 1, 1))
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x, closeness):
        b, n, c = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = scores + self.strength * closeness.unsqueeze(1)
        probs = scores.softmax(dim=-1).type_as(v)
        return self.out((probs @ v).transpose(1, 2).reshape(b, n, c))


class Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn = GraphAttention(hidden, heads)
        self.ffn = nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.GELU(), nn.Linear(2 * hidden, hidden))

    def forward(self, x, closeness):
        x = x + self.attn(self.norm1(x), closeness)
        return x + self.ffn(self.norm2(x))


class GraphTransformer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Embedding(16, args.hidden)
        self.layers = nn.ModuleList([Layer(args.hidden, args.heads) for _ in range(args.layers)])
        self.head = nn.Sequential(nn.LayerNorm(args.hidden), nn.Linear(args.hidden, len(FAMILIES)))

    def forward(self, degree, closeness):
        x = self.embed(degree)
        for layer in self.layers:
            x = layer(x, closeness)
        return self.head(x.mean(1))


def train_one_epoch(model, loader, optimizer):
    losses, accs = AverageMeter(), AverageMeter()
    model.train()
    for degree, closeness, y in loader:
        out = model(degree, closeness)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), len(y))
        accs.update((out.argmax(-1) == y).float().mean().item(), len(y))
    return losses.avg, accs.avg


def main():
    args = get_args()
    set_seed(args.seed)
    loader = DataLoader(build_dataset(args), args.batch_size, shuffle=True, drop_last=True)
    model = GraphTransformer(args)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    start = time.perf_counter()
    for epoch in range(1, args.epochs + 1):
        loss, acc = train_one_epoch(model, loader, optimizer)
        print(f"Epoch: {epoch:03d}, Loss: {loss:.4f}, Train: {acc:.4f}")
    steps = args.epochs * len(loader)
    print(f"{steps * args.batch_size / (time.perf_counter() - start):.1f} samples/s")


if __name__ == "__main__":
    main()
