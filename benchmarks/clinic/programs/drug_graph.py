# /// clinic
# expect = ["PD10.whole-sort"]
# stratum = "twins"
# domain = "biomedical knowledge graph"
# sizes = {ENTITIES = [11500, 14000], DIM = [104, 136]}
# ///
from __future__ import annotations

import abc
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import nn

ENTITIES = 13000
DIM = 128

logger = logging.getLogger(__name__)


# --------------------------------------------------------------------------- config
@dataclass
class GraphConfig:
    entities: int = ENTITIES
    relations: int = 24
    communities: int = 40
    train_facts: int = 6400
    valid_facts: int = 2500
    seed: int = 3


@dataclass
class ModelConfig:
    dim: int = DIM
    init_scale: float = 0.05
    label_smoothing: float = 0.1


@dataclass
class OptimConfig:
    lr: float = 5e-3
    batch_size: int = 128
    epochs: int = 10
    n3: float = 1e-3


@dataclass
class ExperimentConfig:
    graph: GraphConfig = field(default_factory=GraphConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    eval_batch: int = 250


# --------------------------------------------------------------------------- data
class KnowledgeGraph:
    """Synthetic drug / gene / disease facts with a community structure."""

    def __init__(self, cfg: GraphConfig):
        g = torch.Generator().manual_seed(cfg.seed)
        total = cfg.train_facts + cfg.valid_facts
        community = torch.randint(cfg.communities, (cfg.entities,), generator=g)
        members = [torch.nonzero(community == c).flatten() for c in range(cfg.communities)]
        target = torch.randint(cfg.communities, (cfg.relations, cfg.communities), generator=g)
        heads = (torch.rand(total, generator=g).pow(4) * cfg.entities).long()
        rels = torch.randint(cfg.relations, (total,), generator=g)
        picks = torch.rand(total, generator=g)
        tails = []
        for h, r, p in zip(heads.tolist(), rels.tolist(), picks.tolist()):
            pool = members[int(target[r, community[h]])]
            tails.append(int(pool[int(p**6 * len(pool))]))
        facts = torch.stack([heads, rels, torch.tensor(tails)], dim=1)
        self.train, self.valid = facts[: cfg.train_facts], facts[cfg.train_facts :]
        known = defaultdict(list)
        for h, r, t in facts.tolist():
            known[h, r].append(t)
        self.known = dict(known)


# --------------------------------------------------------------------------- models
class Scorer(nn.Module, abc.ABC):
    @abc.abstractmethod
    def score_all(self, head: torch.Tensor, rel: torch.Tensor) -> torch.Tensor: ...

    @abc.abstractmethod
    def penalty(self, head: torch.Tensor, rel: torch.Tensor, tail: torch.Tensor) -> torch.Tensor: ...


class ComplExScorer(Scorer):
    def __init__(self, graph: GraphConfig, cfg: ModelConfig):
        super().__init__()
        self.ent = nn.Embedding(graph.entities, 2 * cfg.dim)
        self.rel = nn.Embedding(graph.relations, 2 * cfg.dim)
        for table in (self.ent, self.rel):
            nn.init.normal_(table.weight, std=cfg.init_scale)

    def score_all(self, head, rel):
        hr, hi = self.ent(head).chunk(2, dim=1)
        rr, ri = self.rel(rel).chunk(2, dim=1)
        query = torch.cat([hr * rr - hi * ri, hr * ri + hi * rr], dim=1)
        return query @ self.ent.weight.t()

    def penalty(self, head, rel, tail):
        cubes = 0.0
        for emb in (self.ent(head), self.rel(rel), self.ent(tail)):
            re, im = emb.chunk(2, dim=1)
            cubes = cubes + (re.square() + im.square() + 1e-9).pow(1.5).sum(1)
        return cubes.mean()


# --------------------------------------------------------------------------- evaluation
class Evaluator(abc.ABC):
    def __init__(self, graph: KnowledgeGraph, batch: int):
        self.graph, self.batch = graph, batch

    @abc.abstractmethod
    def ranks(self, scores: torch.Tensor, tail: torch.Tensor) -> torch.Tensor: ...

    @torch.no_grad()
    def __call__(self, model: Scorer) -> dict[str, float]:
        model.eval()
        found = []
        for facts in self.graph.valid.split(self.batch):
            head, rel, tail = facts.unbind(1)
            found.append(self.ranks(self.prepare(model.score_all(head, rel), facts), tail))
        model.train()
        rank = torch.cat(found).float()
        return {"mrr": rank.reciprocal().mean().item(), "hits@10": (rank <= 10).float().mean().item()}

    def prepare(self, scores, facts):
        return scores


class FilteredRankEvaluator(Evaluator):
    """The usual filtered setting: other true tails of the same query do not count."""

    def __init__(self, graph: KnowledgeGraph, batch: int):
        super().__init__(graph, batch)
        self.hidden = []
        for facts in graph.valid.split(batch):
            pairs = [
                (row, other)
                for row, (h, r, t) in enumerate(facts.tolist())
                for other in graph.known[h, r]
                if other != t
            ]
            self.hidden.append(torch.tensor(pairs, dtype=torch.long).reshape(-1, 2))
        self.turn = 0

    def prepare(self, scores, facts):
        rows, cols = self.hidden[self.turn % len(self.hidden)].unbind(1)
        self.turn += 1
        scores[rows, cols] = float("-inf")
        return scores

    def ranks(self, scores, tail):
        order = scores.argsort(dim=1, descending=True)  # sick here
        return (order == tail[:, None]).nonzero()[:, 1] + 1  # sick
        return (scores > scores.gather(1, tail[:, None])).sum(dim=1) + 1  # well


# --------------------------------------------------------------------------- experiment
class Experiment:
    def __init__(self, cfg: ExperimentConfig):
        self.cfg = cfg
        self.graph = KnowledgeGraph(cfg.graph)
        self.model = self.build_model()
        self.evaluator = FilteredRankEvaluator(self.graph, cfg.eval_batch)
        self.criterion = nn.CrossEntropyLoss(label_smoothing=cfg.model.label_smoothing)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=cfg.optim.lr * 10)

    def build_model(self) -> Scorer:
        return ComplExScorer(self.cfg.graph, self.cfg.model)

    def step(self, facts: torch.Tensor) -> float:
        head, rel, tail = facts.unbind(1)
        self.optimizer.zero_grad()
        loss = self.criterion(self.model.score_all(head, rel), tail)
        loss = loss + self.cfg.optim.n3 * self.model.penalty(head, rel, tail)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def epoch(self) -> tuple[float, int]:
        perm = torch.randperm(len(self.graph.train))
        losses = [self.step(self.graph.train[i]) for i in perm.split(self.cfg.optim.batch_size)]
        return sum(losses) / len(losses), len(perm)

    def run(self) -> float:
        facts, begin = 0, 0.0
        for n in range(self.cfg.optim.epochs):
            if n == 1:
                begin = time.perf_counter()
            loss, done = self.epoch()
            result = self.evaluator(self.model)
            if n:
                facts += done
            logger.info("epoch %d  loss %.3f  mrr %.4f  hits@10 %.3f", n, loss, result["mrr"], result["hits@10"])
        return facts / (time.perf_counter() - begin)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(1)
    rate = Experiment(ExperimentConfig()).run()
    print(f"training rate: {rate:.1f} facts/s")
