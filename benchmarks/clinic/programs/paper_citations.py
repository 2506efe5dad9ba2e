# /// clinic
# expect = ["PD10.unchanged-work"]
# stratum = "twins"
# domain = "paper citations"
# ///
"""Graph convolution network that sorts papers of a citation graph into fields."""

import time

import torch
from torch import nn
import torch.nn.functional as F


def citation_graph(papers=8000, links=60_000, fields=8, words=128):
    g = torch.Generator().manual_seed(0)
    field = torch.randint(fields, (papers,), generator=g)
    order = field.argsort()
    bounds = torch.searchsorted(field[order], torch.arange(fields + 1))
    source = torch.randint(papers, (links,), generator=g)
    f = field[source]
    width = (bounds[f + 1] - bounds[f]).float()
    inside = order[bounds[f] + (torch.rand(links, generator=g) * width).long()]
    outside = torch.randint(papers, (links,), generator=g)
    goal = torch.where(torch.rand(links, generator=g) < 0.6, inside, outside)
    topics = torch.randn(fields, words, generator=g)
    x = 0.25 * topics[field] + torch.randn(papers, words, generator=g)
    return x, torch.stack([source, goal]), field


def normalised_adjacency(edges, n):
    loops = torch.arange(n).repeat(2, 1)
    both = torch.cat([edges, edges.flip(0), loops], dim=1)
    adj = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), (n, n)).coalesce()
    row, col = adj.indices()
    value = adj.values().clamp(max=1.0)
    degree = torch.zeros(n).index_add_(0, row, value)
    scale = degree.rsqrt()
    return torch.sparse_coo_tensor(adj.indices(), scale[row] * value * scale[col], (n, n), is_coalesced=True)


class CitationNet(nn.Module):
    def __init__(self, edges, papers, words, fields, hidden=96):
        super().__init__()
        self.edges = edges
        self.papers = papers
        self.adj = normalised_adjacency(edges, papers)  # well
        self.first = nn.Linear(words, hidden)
        self.second = nn.Linear(hidden, fields)

    def forward(self, x):
        adj = normalised_adjacency(self.edges, self.papers)  # sick here
        adj = self.adj  # well
        h = F.relu(torch.sparse.mm(adj, self.first(F.dropout(x, 0.3, self.training))))
        return torch.sparse.mm(adj, self.second(F.dropout(h, 0.5, self.training)))


def main():
    torch.manual_seed(0)
    x, edges, field = citation_graph()
    papers = len(x)
    split = torch.randperm(papers)
    train, valid = split[:2000], split[2000:4000]
    model = CitationNet(edges, papers, x.shape[1], int(field.max()) + 1)
    opt = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    steps, warm = 600, 5
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        model.train()
        loss = F.cross_entropy(model(x)[train], field[train])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 49:
            model.eval()
            with torch.no_grad():
                hit = (model(x)[valid].argmax(1) == field[valid]).float().mean().item()
            print(f"step {step + 1} loss {loss.item():.3f} valid {hit:.3f}")
    rate = (steps - warm) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
