# /// clinic
# expect = ["PD10.sparse-by-coordinates"]
# stratum = "twins"
# domain = "graph of payments"
# sizes = {WIDTH = [72, 88], ACCOUNTS = [7600, 8400]}
# ///
"""Finds mule accounts in a graph of payments: a three-layer residual GCN on the whole graph, trained with Lightning."""

import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

ACCOUNTS = 8000
PAYMENTS = 90000
WIDTH = 80
FEATURES = 32
STEPS = 150
WARMUP = 6


def payments(seed):
    """Ring-shaped transfers among mules on top of ordinary, popularity-driven payments."""
    gen = torch.Generator().manual_seed(seed)
    mule = torch.rand(ACCOUNTS, generator=gen) < 0.08
    payer = torch.randint(0, ACCOUNTS, (PAYMENTS,), generator=gen)
    payee = (torch.rand(PAYMENTS, generator=gen).pow(2.0) * ACCOUNTS).long()
    ring = mule.nonzero().squeeze(1)
    ring = ring[torch.randperm(len(ring), generator=gen)]
    hops = torch.stack([torch.cat([ring, ring]), torch.cat([ring.roll(1), ring.roll(2)])])
    edges = torch.cat([torch.stack([payer, payee]), hops], 1)
    traits = torch.randn(ACCOUNTS, FEATURES, generator=gen)
    traits[mule] += 0.25
    return traits, edges, mule.long()


def normalized(edges, count):
    """D^-1/2 (A + A' + I) D^-1/2"""
    loops = torch.arange(count).expand(2, -1)
    index = torch.cat([edges, edges.flip(0), loops], 1)
    graph = torch.sparse_coo_tensor(index, torch.ones(index.shape[1]), (count, count)).coalesce()
    row, column = graph.indices()
    degree = torch.zeros(count).index_add_(0, row, graph.values())
    weight = graph.values() * degree.rsqrt()[row] * degree.rsqrt()[column]
    graph = torch.sparse_coo_tensor(graph.indices(), weight, graph.shape, is_coalesced=True)
    return graph  # sick here
    return graph.to_sparse_csr()  # well


class Splits(Dataset):
    """Each item is a fresh half of the labelled accounts, so that the other half can be watched."""

    def __init__(self, labelled, length, seed):
        self.labelled, self.length, self.seed = labelled, length, seed

    def __len__(self):
        return self.length

    def __getitem__(self, item):
        gen = torch.Generator().manual_seed(self.seed * 100003 + item)
        order = self.labelled[torch.randperm(len(self.labelled), generator=gen)]
        half = len(order) // 2
        return order[:half], order[half:]


class Convolution(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.own = nn.Linear(width, width)
        self.near = nn.Linear(width, width, bias=False)

    def forward(self, graph, x):
        y = self.norm(x)
        return x + nn.functional.gelu(self.own(y) + self.near(torch.sparse.mm(graph, y)))


class MuleFinder(L.LightningModule):
    def __init__(self, traits, edges, labels):
        super().__init__()
        self.traits, self.labels = traits, labels
        self.graph = normalized(edges, len(traits))
        self.enter = nn.Linear(traits.shape[1], WIDTH)
        self.layers = nn.ModuleList(Convolution(WIDTH) for _ in range(3))
        self.leave = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Dropout(0.2), nn.Linear(WIDTH, 2))

    def forward(self):
        x = self.enter(self.traits)
        for layer in self.layers:
            x = layer(self.graph, x)
        return self.leave(x)

    def training_step(self, batch, batch_idx):
        chosen, watched = batch
        logits = self()
        weight = torch.tensor([1.0, 6.0])
        loss = nn.functional.cross_entropy(logits[chosen], self.labels[chosen], weight=weight)
        with torch.no_grad():
            hit = (logits[watched].argmax(1) == self.labels[watched]).float().mean()
        self.log_dict({"loss": loss, "watched": hit}, prog_bar=False)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 2e-3, weight_decay=1e-3)
        plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS + 1)
        return [optimizer], [{"scheduler": plan, "interval": "step"}]


class Pace(L.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == WARMUP and not hasattr(self, "started"):
            self.started = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 40 == 0:
            figures = trainer.callback_metrics
            print(f"{trainer.global_step}  loss {figures['loss']:.4f}  watched {figures['watched']:.4f}")

    def on_train_end(self, trainer, module):
        seconds = time.perf_counter() - self.started
        print(f"{(trainer.global_step - WARMUP) / seconds:.2f} steps/s")


def main():
    L.seed_everything(21, verbose=False)
    traits, edges, labels = payments(seed=21)
    labelled = torch.randperm(ACCOUNTS)[: ACCOUNTS * 3 // 5]
    model = MuleFinder(traits, edges, labels)
    loader = DataLoader(Splits(labelled, STEPS, seed=21), batch_size=None)
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Pace()],
    )
    trainer.fit(model, loader)


if __name__ == "__main__":
    main()
