# /// clinic
# expect = ["PD10.einsum-order"]
# stratum = "twins"
# domain = "knowledge-graph embeddings"
# ///
"""Link prediction on a drug-gene-disease graph with TuckER (Balazevic et al., 2019), 1-N scoring.

Entities are described by a fixed fingerprint (molecule, sequence or ontology), encoded and added to a free embedding.
"""

import math
import time
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    entities: int = 3000
    relations: int = 18
    triples: int = 60_000
    fingerprint: int = 256
    hidden: int = 256
    entity_dim: int = 48
    relation_dim: int = 4
    batch_size: int = 128
    steps: int = 1200
    eval_every: int = 400
    lr: float = 2e-3
    smoothing: float = 0.1
    seed: int = 5


def make_graph(cfg):
    """Triples drawn from a low-rank world, so that there is something to learn."""
    g = torch.Generator().manual_seed(cfg.seed)
    community = torch.randint(40, (cfg.entities,), generator=g)
    follows = torch.randint(40, (cfg.relations, 40), generator=g)
    order = community.argsort()
    start = torch.searchsorted(community[order], torch.arange(41))
    head = torch.randint(cfg.entities, (cfg.triples,), generator=g)
    relation = torch.randint(cfg.relations, (cfg.triples,), generator=g)
    target = follows[relation, community[head]]
    size = (start[target + 1] - start[target]).clamp_min(1)
    offset = (torch.rand(cfg.triples, generator=g) * size).long()
    tail = order[(start[target] + offset).clamp_max(cfg.entities - 1)]
    fingerprints = torch.randn(40, cfg.fingerprint, generator=g)[community]
    fingerprints += 2 * torch.randn(fingerprints.shape, generator=g)
    return torch.stack([head, relation, tail], 1).unique(dim=0), fingerprints


class QueryTable:
    """All (head, relation) queries with their known tails in CSR form."""

    def __init__(self, triples, cfg):
        key = triples[:, 0] * cfg.relations + triples[:, 1]
        order = key.argsort()
        self.tails = triples[order, 2]
        self.keys, counts = key[order].unique_consecutive(return_counts=True)
        self.counts = counts
        self.begin = counts.cumsum(0) - counts
        self.cfg = cfg

    def __len__(self):
        return len(self.keys)

    def rows(self, picked):
        key, count = self.keys[picked], self.counts[picked]
        head, relation = key // self.cfg.relations, key % self.cfg.relations
        row = torch.arange(len(picked)).repeat_interleave(count)
        within = torch.arange(len(row)) - (count.cumsum(0) - count)[row]
        label = torch.zeros(len(picked), self.cfg.entities)
        label[row, self.tails[self.begin[picked][row] + within]] = 1.0
        return head, relation, label

    def find(self, head, relation):
        return torch.searchsorted(self.keys, head * self.cfg.relations + relation)


class TuckER(nn.Module):
    def __init__(self, cfg, fingerprints):
        super().__init__()
        self.register_buffer("fingerprints", fingerprints)
        self.encode = nn.Sequential(
            nn.Linear(cfg.fingerprint, cfg.hidden), nn.ReLU(), nn.Linear(cfg.hidden, cfg.entity_dim, bias=False)
        )
        self.entity = nn.Embedding(cfg.entities, cfg.entity_dim)
        self.relation = nn.Embedding(cfg.relations, cfg.relation_dim)
        self.core = nn.Parameter(torch.empty(cfg.entity_dim, cfg.relation_dim, cfg.entity_dim))
        self.norm = nn.BatchNorm1d(cfg.entity_dim)
        self.drop_head = nn.Dropout(0.2)
        self.drop_relation = nn.Dropout(0.1)
        self.bias = nn.Parameter(torch.zeros(cfg.entities))
        nn.init.xavier_normal_(self.entity.weight)
        nn.init.xavier_normal_(self.relation.weight)
        nn.init.uniform_(self.core, -0.3, 0.3)

    def forward(self, head, relation):
        entities = self.entity.weight + self.encode(self.fingerprints)
        h = self.drop_head(self.norm(entities[head]))
        r = self.drop_relation(self.relation(relation))
        scores = torch.einsum("nk,ijk,bi,bj->bn", entities, self.core, h, r)  # sick here
        scores = torch.einsum("bi,ijk,bj,nk->bn", h, self.core, r, entities)  # well
        return scores + self.bias


@torch.no_grad()
def filtered_mrr(model, test, known, batch_size=500):
    """Mean reciprocal rank of the true tail; other known tails do not count."""
    model.eval()
    reciprocal = []
    for head, relation, tail in (chunk.unbind(1) for chunk in test.split(batch_size)):
        scores = model(head, relation)
        truth = scores.gather(1, tail[:, None])
        _, _, label = known.rows(known.find(head, relation))
        scores.masked_fill_(label.bool(), -math.inf)
        reciprocal.append(1.0 / (1 + (scores > truth).sum(1)))
    model.train()
    return torch.cat(reciprocal).mean().item()


def batches(size, batch_size, generator):
    while True:
        order = torch.randperm(size, generator=generator)
        yield from order[: size - size % batch_size].split(batch_size)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    triples, fingerprints = make_graph(cfg)
    triples = triples[torch.randperm(len(triples))]
    test, train = triples[:1000], triples[1000:]
    table, known = QueryTable(train, cfg), QueryTable(triples, cfg)
    print(f"{len(train)} training triples in {len(table)} queries")

    model = TuckER(cfg, fingerprints)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9995)
    criterion = nn.BCEWithLogitsLoss()
    stream = batches(len(table), cfg.batch_size, torch.Generator().manual_seed(cfg.seed))

    running = torch.zeros(())
    start = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        head, relation, label = table.rows(next(stream))
        label.mul_(1 - cfg.smoothing).add_(1 / cfg.entities)
        loss = criterion(model(head, relation), label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        decay.step()
        running += loss.detach()
        if step == 5:
            start = time.perf_counter()
        if step % cfg.eval_every == 0:
            mrr = filtered_mrr(model, test, known)
            print(f"step {step}: loss {running.item() / cfg.eval_every:.4f}, filtered MRR {mrr:.3f}")
            running.zero_()

    torch.save(model.state_dict(), "tucker.pt")
    print(f"{(cfg.steps - 5) / (time.perf_counter() - start):.3f} steps/s")


if __name__ == "__main__":
    main()
