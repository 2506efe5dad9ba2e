# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "tabular data"
# ///
"""Self-supervised pretraining (SCARF) on a table of credit applications.

Two views of a row: the row itself, and the row with a part of its cells replaced by values that
are drawn from the same columns of other rows. The views of one row should land close together.
A linear probe on the default flag says at the end what the representation is worth.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Dataset


@dataclass
class Settings:
    rows: int = 40_000
    columns: int = 48
    corruption_rate: float = 0.6
    hidden: int = 128
    embedding: int = 64
    batch_size: int = 256
    temperature: float = 0.5
    lr: float = 1e-3
    epochs: int = 20
    seed: int = 5


class Applications(Dataset):
    """Correlated numeric columns, and a default flag that depends on a few latent factors."""

    def __init__(self, cfg):
        generator = torch.Generator().manual_seed(cfg.seed)
        factors = torch.randn(cfg.rows, 8, generator=generator)
        loading = torch.randn(8, cfg.columns, generator=generator)
        noise = torch.randn(cfg.rows, cfg.columns, generator=generator)
        table = torch.tanh(factors @ loading / math.sqrt(8)) + 0.3 * noise
        self.table = (table - table.mean(0)) / table.std(0)
        self.default = (factors[:, 0] * factors[:, 1] + factors[:, 2] > 0.5).float()

    def __len__(self):
        return len(self.table)

    def __getitem__(self, rows):
        return self.table[rows]


class Corruption:
    """Replaces `rate` of the cells of each row, exactly the same number in every row."""

    def __init__(self, table, rate):
        self.table = table
        self.columns = table.shape[1]
        self.length = int(rate * self.columns)

    def draw_mask(self, rows):
        mask = torch.zeros(rows, self.columns, dtype=torch.bool)
        for i in range(rows):  # sick here
            chosen = torch.randperm(self.columns)[: self.length]  # sick here
            mask[i, chosen] = True  # sick here
        chosen = torch.rand(rows, self.columns).topk(self.length, dim=1).indices  # well
        mask.scatter_(1, chosen, True)  # well
        return mask

    def draw_values(self, rows):
        donors = torch.randint(len(self.table), (rows, self.columns))
        return self.table.gather(0, donors)

    def __call__(self, x):
        mask = self.draw_mask(len(x))  # here
        return torch.where(mask, self.draw_values(len(x)), x)


def mlp(sizes):
    layers = []
    for n_in, n_out in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Scarf(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.encoder = mlp([cfg.columns, cfg.hidden, cfg.hidden, cfg.hidden])
        self.head = mlp([cfg.hidden, cfg.hidden, cfg.embedding])

    def forward(self, x):
        return F.normalize(self.head(self.encoder(x)), dim=1)


def nt_xent(a, b, temperature):
    """Every other row of the two views is a negative."""
    z = torch.cat([a, b])
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    n = len(a)
    partner = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(similarity, partner)


def linear_probe(encoder, data):
    """Least squares on the frozen representation; the accuracy on the last fifth of the rows."""
    encoder.eval()
    with torch.no_grad():
        features = torch.cat([encoder(part) for part in data.table.split(4096)])
    features = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    cut = len(features) * 4 // 5
    weights = torch.linalg.lstsq(features[:cut], data.default[:cut, None]).solution
    guess = (features[cut:] @ weights).squeeze(1) > 0.5
    return (guess == data.default[cut:].bool()).float().mean().item()


def pretrain(model, data, cfg):
    sampler = BatchSampler(RandomSampler(data), cfg.batch_size, drop_last=True)
    loader = DataLoader(data, sampler=sampler, batch_size=None)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    corrupt = Corruption(data.table, cfg.corruption_rate)
    start = time.monotonic()
    for epoch in range(cfg.epochs):
        model.train()
        total = torch.zeros(())
        for x in loader:
            view = corrupt(x)  # here
            loss = nt_xent(model(x), model(view), cfg.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        print(f"epoch {epoch + 1} loss {total.item() / len(loader):.4f} {time.monotonic() - start:.1f} s", flush=True)


def main():
    cfg = Settings()
    torch.manual_seed(cfg.seed)
    data = Applications(cfg)
    model = Scarf(cfg)
    pretrain(model, data, cfg)
    print("probe accuracy", round(linear_probe(model.encoder, data), 3))


if __name__ == "__main__":
    main()
