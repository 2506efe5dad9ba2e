# /// clinic
# expect = ["PD09", "PD10"]
# stratum = "twins"
# domain = "graph node classification"
# ///
"""Classify the papers of a citation graph with a two-layer graph network."""

import time

import torch
import torch.nn.functional as F
from torch import nn

CONFIG = {
    "papers": 2700,
    "links": 5400,
    "words": 1433,
    "hidden": 256,
    "topics": 32,
    "dropout": 0.5,
    "lr": 0.01,
    "decay": 5e-4,
    "steps": 330,
}


def make_graph(cfg):
    gen = torch.Generator().manual_seed(6)
    n = cfg["papers"]
    topic = torch.randint(0, cfg["topics"], (n,), generator=gen)
    src = torch.randint(0, n, (cfg["links"],), generator=gen)
    dst = torch.randint(0, n, (cfg["links"],), generator=gen)
    proto = (torch.rand(cfg["topics"], cfg["words"], generator=gen) < 0.03).float()
    noise = (torch.rand(n, cfg["words"], generator=gen) < 0.01).float()
    words = (proto[topic] + noise).clamp(max=1)
    return words / words.sum(1, keepdim=True).clamp(min=1), topic, torch.stack([src, dst])


def normalized(links, n):
    both = torch.cat([links, links.flip(0), torch.arange(n).expand(2, n)], dim=1)
    adj = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), (n, n)).coalesce()
    row, col = adj.indices()
    deg = torch.zeros(n).index_add_(0, row, adj.values()).rsqrt()
    return torch.sparse_coo_tensor(adj.indices(), adj.values() * deg[row] * deg[col], (n, n)).coalesce()


class GraphConv(nn.Module):
    def __init__(self, width_in, width_out, adj):
        super().__init__()
        self.weight = nn.Linear(width_in, width_out, bias=False)
        self.bias = nn.Parameter(torch.zeros(width_out))
        self.adj = adj.to_dense()  # sick
        self.adj = adj  # well

    def forward(self, h):
        support = self.weight(h)
        return torch.mm(self.adj, support) + self.bias  # sick here
        return torch.sparse.mm(self.adj, support) + self.bias  # well


class GCN(nn.Module):
    def __init__(self, cfg, adj):
        super().__init__()
        self.dropout = cfg["dropout"]
        self.first = nn.Linear(cfg["words"], cfg["hidden"])
        self.conv1 = GraphConv(cfg["hidden"], 64, adj)
        self.conv2 = GraphConv(64, cfg["topics"], adj)

    def forward(self, x):
        h = F.relu(self.first(F.dropout(x, self.dropout, self.training)))
        h = F.relu(self.conv1(h))
        return self.conv2(F.dropout(h, self.dropout, self.training))


def train(cfg):
    torch.manual_seed(0)
    words, topic, links = make_graph(cfg)
    model = GCN(cfg, normalized(links, cfg["papers"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"], weight_decay=cfg["decay"], fused=True)
    known = torch.rand(cfg["papers"]) < 0.3
    for step in range(1, cfg["steps"] + 1):
        optimizer.zero_grad()
        F.cross_entropy(model(words)[known], topic[known]).backward()
        optimizer.step()
        if step == 20:
            start = time.perf_counter()
    return (cfg["steps"] - 20) / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{train(CONFIG):.1f} steps/s")
