# /// clinic
# expect = ["PD10.python-work", "PD10.element-loop"]
# stratum = "twins"
# domain = "kelp forests"
# ///
"""Missing links in the interaction network of kelp forests.

Nodes are populations (a taxon at a reef): kelps, understorey algae, urchins, abalone, fishes, otters and so on. A link
is an observed interaction (grazing, predation, shelter, competition). Diver surveys miss most of them. A GraphSAGE
encoder looks at the sampled neighbourhood, a bilinear decoder ranks a true partner above partners that nobody has seen.
"""

import random  # sick
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

GUILDS = 9


def make_forest(reefs=48, taxa=50, links=50_000, traits=16, seed=3):
    """Populations with noisy traits; links are drawn from a trait model, mostly within a reef or between near reefs."""
    g = torch.Generator().manual_seed(seed)
    n = reefs * taxa
    guild = torch.randint(GUILDS, (taxa,), generator=g)
    appetite = torch.randn(GUILDS, GUILDS, generator=g) * 1.5
    body = torch.randn(taxa, generator=g)
    place = torch.rand(reefs, 2, generator=g)
    reef = torch.arange(n) // taxa
    taxon = torch.arange(n) % taxa
    found = []
    for _ in range(12):
        u = torch.randint(n, (200_000,), generator=g)
        near = torch.rand(len(u), generator=g) < 0.6
        v = torch.where(near, reef[u] * taxa, reef[torch.randint(n, (len(u),), generator=g)] * taxa)
        v = v + torch.randint(taxa, (len(u),), generator=g)
        far = (place[reef[u]] - place[reef[v]]).norm(dim=1)
        size = (body[taxon[u]] - body[taxon[v]] - 0.7).abs()
        logit = appetite[guild[taxon[u]], guild[taxon[v]]] - 1.5 * size - 4.0 * far - 1.0
        kept = (torch.rand(len(u), generator=g) < torch.sigmoid(logit)) & (u != v)
        found.append(torch.stack([u[kept], v[kept]], dim=1))
    edges = torch.unique(torch.cat(found), dim=0)
    edges = edges[torch.randperm(len(edges), generator=g)[:links]]
    group = F.one_hot(guild[taxon], GUILDS).float()
    rest = torch.cat([body[taxon, None], place[reef], torch.randn(n, traits - 3, generator=g)], dim=1)
    return torch.cat([group, rest + 0.2 * torch.randn(rest.shape, generator=g)], dim=1), edges


def neighbour_table(edges, n, width, seed=4):
    """Up to `width` partners of each node, in either direction; n stands for none."""
    both = torch.cat([edges, edges.flip(1)])
    both = both[torch.randperm(len(both), generator=torch.Generator().manual_seed(seed))]
    both = both[both[:, 0].argsort(stable=True)]
    count = torch.bincount(both[:, 0], minlength=n)
    place = torch.arange(len(both)) - (count.cumsum(0) - count)[both[:, 0]]
    table = torch.full((n, width), n)
    kept = place < width
    table[both[kept, 0], place[kept]] = both[kept, 1]
    return table


class Sage(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.own = nn.Linear(fan_in, fan_out)
        self.partners = nn.Linear(fan_in, fan_out, bias=False)
        self.norm = nn.LayerNorm(fan_out)

    def forward(self, x, table):
        padded = torch.cat([x, x.new_zeros(1, x.shape[1])])
        mean = F.embedding_bag(table, padded, mode="mean", padding_idx=len(x))
        return F.relu(self.norm(self.own(x) + self.partners(mean)))


class LinkModel(L.LightningModule):
    def __init__(self, traits, table, edges, width=48, negatives=16, lr=3e-3):
        super().__init__()
        self.save_hyperparameters("width", "negatives", "lr")
        self.register_buffer("traits", traits)
        self.register_buffer("table", table)
        self.n = len(traits)
        self.known = set(map(tuple, edges.tolist()))  # sick
        self.register_buffer("known", torch.zeros(self.n, self.n, dtype=torch.bool))  # well
        self.known[edges[:, 0], edges[:, 1]] = True  # well
        self.free = nn.Embedding(self.n, 16)
        nn.init.normal_(self.free.weight, std=0.1)
        self.sage = nn.ModuleList([Sage(traits.shape[1] + 16, width), Sage(width, width)])
        self.mix = nn.Linear(width, width, bias=False)

    def encode(self):
        x = torch.cat([self.traits, self.free.weight], dim=1)
        for layer in self.sage:
            x = layer(x, self.table)
        return x

    def score(self, h, source, partners):
        u = F.embedding(source, self.mix(h))
        return (F.embedding(partners, h) @ u[:, :, None]).squeeze(-1) / h.shape[1] ** 0.5

    def draw_negatives(self, source):
        k = self.hparams.negatives
        partners = []  # sick
        for u in source.tolist():  # sick here
            for _ in range(k):  # sick here
                v = random.randrange(self.n)  # sick here
                while (u, v) in self.known:  # sick
                    v = random.randrange(self.n)  # sick
                partners.append(v)  # sick
        partners = torch.tensor(partners).view(-1, k)  # sick
        partners = torch.randint(self.n, (len(source), k))  # well
        row, column = self.known[source[:, None], partners].nonzero(as_tuple=True)  # well
        while len(row):  # well
            partners[row, column] = torch.randint(self.n, (len(row),))  # well
            clash = self.known[source[row], partners[row, column]]  # well
            row, column = row[clash], column[clash]  # well
        return partners

    def loss_and_rank(self, batch):
        source, target = batch[0].unbind(1)
        negatives = self.draw_negatives(source)
        h = self.encode()
        partners = torch.cat([target[:, None], negatives], dim=1)
        logits = self.score(h, source, partners)
        loss = F.cross_entropy(logits, torch.zeros(len(source), dtype=torch.long))
        rank = 1 + (logits[:, 1:] > logits[:, :1]).sum(1)
        return loss, (1.0 / rank).mean()

    def training_step(self, batch, batch_idx):
        loss, mrr = self.loss_and_rank(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        loss, mrr = self.loss_and_rank(batch)
        self.log_dict({"val_loss": loss, "val_mrr": mrr})

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


class Report(L.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        values = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {values}")

    def on_train_end(self, trainer, module):
        self.rate = trainer.global_step / (time.perf_counter() - self.start)


def batches(edges, size, shuffle):
    data = TensorDataset(edges)
    order = RandomSampler(data) if shuffle else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, size, drop_last=shuffle), batch_size=None)


def main():
    L.seed_everything(8, verbose=False)
    traits, edges = make_forest()
    held = len(edges) // 10
    table = neighbour_table(edges[held:], len(traits), width=8)
    module = LinkModel(traits, table, edges)
    report = Report()
    trainer = L.Trainer(
        max_epochs=19,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[report],
    )
    trainer.fit(module, batches(edges[held:], 1024, True), batches(edges[:held], 2048, False))
    print(f"{report.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
