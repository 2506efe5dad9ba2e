# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "search and ranking"
# ///
"""Ranks the products of a shop for a search: query words and product numbers in, one score per candidate out.

Trained on click logs, each a query, the list of products shown and the one that was clicked.
"""

import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    words: int = 8000
    products: int = 200000
    topics: int = 16
    query_length: int = 6
    shown: int = 8
    dim: int = 32
    hidden: int = 320
    logs: int = 50000
    held_out: int = 2000
    batch_size: int = 128
    epochs: int = 2
    lr: float = 2e-3
    table_lr: float = 1e-2  # well
    warmup: int = 50
    report_every: int = 150
    seed: int = 31


def make_logs(count, cfg, world, generator):
    """Queries about one topic; the shown products are of all topics and the best fit gets the click."""
    word_topic, product_topic, product_appeal = world
    first = torch.randint(0, cfg.words, (count, 1), generator=generator)
    topic = word_topic[first]
    shift = cfg.topics * torch.randint(0, cfg.words // cfg.topics, (count, cfg.query_length - 1), generator=generator)
    query = torch.cat([first, (first + shift) % cfg.words], dim=1)
    popular = torch.rand(count, cfg.shown, generator=generator) ** 5
    shown = (popular * cfg.products).long()
    fit = 3.0 * (product_topic[shown] == topic) + product_appeal[shown]
    noise = -torch.log(-torch.log(torch.rand(count, cfg.shown, generator=generator).clamp(1e-6, 1 - 1e-6)))
    clicked = (fit + 0.5 * noise).argmax(dim=1)
    return query, shown, clicked


class Ranker(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.words = nn.EmbeddingBag(cfg.words, cfg.dim, mode="mean")
        self.products = nn.Embedding(cfg.products, cfg.dim)  # sick here
        self.products = nn.Embedding(cfg.products, cfg.dim, sparse=True)  # well
        nn.init.normal_(self.products.weight, std=0.1)
        self.scorer = nn.Sequential(
            nn.Linear(3 * cfg.dim, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, cfg.hidden),
            nn.ReLU(),
            nn.Linear(cfg.hidden, 1),
        )

    def forward(self, query, shown):
        product = self.products(shown)
        words = self.words(query).unsqueeze(1).expand_as(product)
        return self.scorer(torch.cat([words, product, words * product], dim=-1)).squeeze(-1)


class Update:
    """The optimizers of the model together with the warm-up and the decay of their learning rate."""

    def __init__(self, model, cfg, total_steps):
        table = list(model.products.parameters())  # well
        rest = [*model.words.parameters(), *model.scorer.parameters()]  # well
        self.optimizers = [torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)]  # sick here
        adam = torch.optim.Adam(rest, lr=cfg.lr, fused=True)  # well
        self.optimizers = [adam, torch.optim.SparseAdam(table, lr=cfg.table_lr)]  # well

        def factor(step):
            return min((step + 1) / cfg.warmup, max(0.05, 1 - step / total_steps))

        self.schedules = [torch.optim.lr_scheduler.LambdaLR(opt, factor) for opt in self.optimizers]

    def __call__(self, loss):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        for schedule in self.schedules:
            schedule.step()

    @property
    def rate(self):
        return self.schedules[0].get_last_lr()[0]


@torch.no_grad()
def reciprocal_rank(model, logs):
    query, shown, clicked = logs
    scores = model(query, shown)
    own = scores.gather(1, clicked.unsqueeze(1))
    rank = (scores > own).sum(dim=1) + 1
    return (1.0 / rank).mean().item()


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed)
    world = (
        torch.arange(cfg.words) % cfg.topics,
        torch.randint(0, cfg.topics, (cfg.products,), generator=generator),
        torch.randn(cfg.products, generator=generator),
    )
    train_logs = make_logs(cfg.logs, cfg, world, generator)
    test_logs = make_logs(cfg.held_out, cfg, world, generator)

    model = Ranker(cfg)
    per_epoch = cfg.logs // cfg.batch_size
    update = Update(model, cfg, cfg.epochs * per_epoch)

    step, running = 0, torch.zeros(())
    begun = time.perf_counter()
    for epoch in range(cfg.epochs):
        order = torch.randperm(cfg.logs)[: per_epoch * cfg.batch_size]
        for index in order.view(per_epoch, cfg.batch_size):
            query, shown, clicked = (part[index] for part in train_logs)
            loss = F.cross_entropy(model(query, shown), clicked)
            update(loss)
            running += loss.detach()
            step += 1
            if step % cfg.report_every == 0:
                print(f"step {step}: loss {running.item() / cfg.report_every:.4f}, rate {update.rate:.2e}")
                running.zero_()
        print(f"epoch {epoch}: mean reciprocal rank {reciprocal_rank(model, test_logs):.3f}")
    seconds = time.perf_counter() - begun
    print(f"{step * cfg.batch_size / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
