# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "pigeon posts"
# ///
#!/usr/bin/env python
"""Delay of the mail at each loft of a pigeon post, one evening ahead.

The post is a small net of lofts.  A bird flies from loft to loft, so a storm or a hawk at one place holds up the mail
of its neighbours as well.  The model passes messages along the flight lines and predicts the delay at all lofts.
"""

import logging
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

log = logging.getLogger("relay")

LOFTS = ("Antwerp", "Aachen", "Liege", "Brussels", "Ghent", "Lille", "Arras", "Namur", "Mons")
LINES = (
    ("Antwerp", "Brussels"),
    ("Antwerp", "Ghent"),
    ("Aachen", "Liege"),
    ("Liege", "Brussels"),
    ("Liege", "Namur"),
    ("Brussels", "Ghent"),
    ("Brussels", "Namur"),
    ("Brussels", "Mons"),
    ("Ghent", "Lille"),
    ("Lille", "Arras"),
    ("Lille", "Mons"),
    ("Arras", "Mons"),
    ("Namur", "Mons"),
)
FEATURES = 6  # head wind, rain, hawks, birds at home, messages waiting, hour of release


@dataclass
class RelayConfig:
    batch_size: int = 16
    updates: int = 9000
    width: int = 32
    rounds: int = 1
    lr: float = 2e-3
    weight_decay: float = 1e-4
    clip: float = 1.0
    report_every: int = 1500
    evenings: int = 30_000
    seed: int = 1870
    lofts: tuple = field(default=LOFTS, repr=False)


def neighbours() -> list[list[int]]:
    """For each loft the lofts that its birds come from, itself among them."""
    where = {name: k for k, name in enumerate(LOFTS)}
    lists = [[k] for k in range(len(LOFTS))]
    for a, b in LINES:
        lists[where[a]].append(where[b])
        lists[where[b]].append(where[a])
    return [sorted(one) for one in lists]


def flight_matrix() -> Tensor:
    """Row v: equal weight on each loft that loft v gets birds from."""
    matrix = torch.zeros(len(LOFTS), len(LOFTS))
    for v, sources in enumerate(neighbours()):
        matrix[v, sources] = 1.0 / len(sources)
    return matrix


def write_ledger(evenings: int, seed: int) -> tuple[Tensor, Tensor]:
    """The ledger of the post office: conditions at the lofts and delays of the mail, in hours."""
    rng = np.random.default_rng(seed)
    n = len(LOFTS)
    front = rng.normal(size=(evenings, 1))
    wind = 0.7 * front + 0.5 * rng.normal(size=(evenings, n))
    rain = np.maximum(0.6 * front + 0.7 * rng.normal(size=(evenings, n)), 0.0)
    hawks = rng.poisson(0.3, (evenings, n)).astype(float)
    birds = rng.normal(size=(evenings, n))
    waiting = rng.gamma(2.0, 0.5, (evenings, n))
    hour = np.repeat(rng.uniform(-1, 1, (evenings, 1)), n, axis=1)
    held = 0.6 * np.tanh(wind) + 0.8 * rain + 0.5 * hawks * (hour > 0) + 0.4 * waiting * (birds < 0)
    spread = flight_matrix().numpy()
    delay = 0.5 * held + 0.9 * np.sqrt(1e-3 + np.maximum(held @ spread.T, 0)) + 0.3 * (held @ spread.T) @ spread.T
    delay += 0.1 * rng.normal(size=delay.shape)
    table = np.stack([wind, rain, hawks, birds, waiting, hour], axis=-1)
    return torch.tensor(table, dtype=torch.float32), torch.tensor(delay, dtype=torch.float32)


class Relay(nn.Module):
    """One round of messages: every loft takes the mean over its sources and joins it to its own state."""

    def __init__(self, width: int):
        super().__init__()
        self.sources = neighbours()  # sick
        self.register_buffer("flights", flight_matrix())  # well
        self.own = nn.Linear(width, width)
        self.others = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def gather(self, h: Tensor) -> Tensor:
        arrived = []  # sick
        for sources in self.sources:  # sick here
            arrived.append(h[:, sources].mean(dim=1))  # sick here
        return torch.stack(arrived, dim=1)  # sick
        return self.flights @ h  # well

    def forward(self, h: Tensor) -> Tensor:
        return h + F.relu(self.norm(self.own(h) + self.others(self.gather(h))))


class RelayNet(nn.Module):
    def __init__(self, cfg: RelayConfig):
        super().__init__()
        self.inlet = nn.Linear(FEATURES, cfg.width)
        self.loft = nn.Parameter(0.1 * torch.randn(len(cfg.lofts), cfg.width))
        self.rounds = nn.ModuleList(Relay(cfg.width) for _ in range(cfg.rounds))
        self.outlet = nn.Sequential(nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Linear(cfg.width, 1))

    def forward(self, table: Tensor) -> Tensor:
        h = self.inlet(table) + self.loft
        for relay in self.rounds:
            h = relay(h)
        return self.outlet(h).squeeze(-1)


class PostTrainer:
    def __init__(self, cfg: RelayConfig):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.net = RelayNet(cfg)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, fused=True)
        self.train_set = write_ledger(cfg.evenings, cfg.seed)
        self.test_set = write_ledger(1_000, cfg.seed + 1)
        self.update = 0

    def draw(self) -> tuple[Tensor, Tensor]:
        pick = torch.randint(self.cfg.evenings, (self.cfg.batch_size,))
        return self.train_set[0][pick], self.train_set[1][pick]

    def train_step(self) -> Tensor:
        table, delay = self.draw()
        loss = F.smooth_l1_loss(self.net(table), delay)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg.clip)
        self.optimizer.step()
        self.update += 1
        return loss.detach()

    @torch.no_grad()
    def test(self) -> float:
        self.net.eval()
        error = F.l1_loss(self.net(self.test_set[0]), self.test_set[1]).item()
        self.net.train()
        return error

    def fit(self) -> float:
        began = time.perf_counter()
        total = torch.zeros(())
        while self.update < self.cfg.updates:
            total += self.train_step()
            if self.update % self.cfg.report_every == 0:
                mean = total.item() / self.cfg.report_every
                log.info("update %d: loss %.4f, off by %.3f hours", self.update, mean, self.test())
                total.zero_()
        return self.update * self.cfg.batch_size / (time.perf_counter() - began)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    trainer = PostTrainer(RelayConfig())
    log.info("%d lofts, %d flight lines, %s", len(LOFTS), len(LINES), trainer.cfg)
    rate = trainer.fit()
    print(f"{rate:.1f} samples/s")
