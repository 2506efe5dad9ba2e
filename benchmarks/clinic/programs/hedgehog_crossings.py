# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "hedgehog crossings"
# ///
"""Where do hedgehogs cross the road?

Counts from camera posts and roadkill transects, one record for a road segment and a night. The model learns a vector
for each segment of the county's road network, looks at the segments next to it (gardens and hedgerows do not end at a
junction) and predicts the number of crossings in that night.
"""

import math
import time
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Config:
    segments: int = 110_000
    neighbours: int = 4
    segment_dim: int = 24
    weather_dim: int = 7
    hidden: int = 224
    records: int = 240_000
    held_out: int = 16_384
    batch_size: int = 1024
    steps: int = 1000
    eval_every: int = 200
    lr: float = 2e-3
    seed: int = 19
    checkpoint: str = "crossings.pt"


class CountySurvey:
    """Synthetic survey of a road network: records, weather and the table of adjacent segments."""

    def __init__(self, cfg: Config):
        rng = np.random.default_rng(cfg.seed)
        n = cfg.segments
        offsets = rng.integers(1, 40, size=(n, cfg.neighbours)) * rng.choice([-1, 1], size=(n, cfg.neighbours))
        self.adjacent = torch.from_numpy((np.arange(n)[:, None] + offsets) % n)

        position = np.linspace(0, 60 * math.pi, n)
        habitat = np.sin(position) + 0.5 * np.sin(3.1 * position + 1) + 0.4 * rng.standard_normal(n)
        visits = rng.zipf(1.3, size=cfg.records * 2)
        segment = (visits * 7919) % n
        uniform = rng.integers(0, n, size=cfg.records * 2)
        segment = np.where(rng.random(len(segment)) < 0.35, segment, uniform)[: cfg.records]

        weather = rng.standard_normal((cfg.records, cfg.weather_dim)).astype(np.float32)
        night = rng.integers(0, 365, size=cfg.records)
        season = np.clip(np.sin((night - 80) / 365 * 2 * math.pi), 0, None)
        log_rate = -1.2 + 0.8 * habitat[segment] + 1.1 * season + 0.3 * weather[:, 0] - 0.4 * np.abs(weather[:, 1])
        count = rng.poisson(np.exp(np.clip(log_rate, -6, 3)))

        self.segment = torch.from_numpy(segment.astype(np.int64))
        self.night = torch.from_numpy(night.astype(np.int64))
        self.weather = torch.from_numpy(weather)
        self.count = torch.from_numpy(count.astype(np.float32))

    def rows(self, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
        segment = self.segment[index]
        return segment, self.adjacent[segment], self.night[index], self.weather[index], self.count[index]


class CrossingModel(nn.Module):
    def __init__(self, cfg: Config):
        super().__init__()
        self.place = nn.Embedding(cfg.segments, cfg.segment_dim)  # sick here
        self.place = nn.Embedding(cfg.segments, cfg.segment_dim, sparse=True)  # well
        nn.init.normal_(self.place.weight, std=0.05)
        self.score = nn.Sequential(nn.Linear(2 * cfg.segment_dim, 32), nn.Tanh(), nn.Linear(32, 1))
        self.body = nn.Sequential(
            nn.Linear(2 * cfg.segment_dim + cfg.weather_dim + 4, cfg.hidden),
            nn.SiLU(),
            nn.LayerNorm(cfg.hidden),
            nn.Linear(cfg.hidden, cfg.hidden // 2),
            nn.SiLU(),
            nn.Linear(cfg.hidden // 2, 1),
        )

    def forward(self, segment, adjacent, night, weather):
        vectors = self.place(torch.cat([segment[:, None], adjacent], dim=1))
        own, around = vectors[:, 0], vectors[:, 1:]
        pairs = torch.cat([own[:, None].expand_as(around), around], dim=-1)
        weight = self.score(pairs).softmax(dim=1)
        context = (weight * around).sum(dim=1)
        phase = night[:, None] * (2 * math.pi / 365) * torch.tensor([1.0, 2.0])
        calendar = torch.cat([phase.sin(), phase.cos()], dim=-1)
        return self.body(torch.cat([own, context, weather, calendar], dim=-1)).squeeze(-1)


def poisson_deviance(log_rate: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    rate = log_rate.exp()
    ratio = torch.where(count > 0, count * (count.clamp(min=1).log() - log_rate), torch.zeros_like(count))
    return 2 * (ratio - (count - rate)).mean()


@torch.no_grad()
def evaluate(model: CrossingModel, survey: CountySurvey, index: torch.Tensor, batch_size: int) -> float:
    model.eval()
    total = 0.0
    for chunk in index.split(batch_size * 4):
        *inputs, count = survey.rows(chunk)
        total += poisson_deviance(model(*inputs), count).item() * len(chunk)
    model.train()
    return total / len(index)


def make_optimizers(model: CrossingModel, cfg: Config) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(model.parameters(), lr=cfg.lr)]  # sick
    rest = [p for name, p in model.named_parameters() if not name.startswith("place.")]  # well
    return [torch.optim.SparseAdam([model.place.weight], lr=cfg.lr), torch.optim.Adam(rest, lr=cfg.lr)]  # well


def main(cfg: Config) -> None:
    torch.manual_seed(cfg.seed)
    survey = CountySurvey(cfg)
    order = torch.randperm(cfg.records)
    held_out, train = order[: cfg.held_out], order[cfg.held_out :]

    model = CrossingModel(cfg)
    optimizers = make_optimizers(model, cfg)
    loss_fn = nn.PoissonNLLLoss(log_input=True)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {len(train):,} records")

    best, running = float("inf"), 0.0
    position, queue = 0, train[torch.randperm(len(train))]
    start = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        if position + cfg.batch_size > len(queue):
            position, queue = 0, train[torch.randperm(len(train))]
        *inputs, count = survey.rows(queue[position : position + cfg.batch_size])
        position += cfg.batch_size

        loss = loss_fn(model(*inputs), count)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        running += loss.detach()

        if step % cfg.eval_every == 0:
            deviance = evaluate(model, survey, held_out, cfg.batch_size)
            print(f"step {step:5d}  nll {float(running) / cfg.eval_every:.4f}  held-out deviance {deviance:.4f}")
            running = 0.0
            if deviance < best:
                best = deviance
                torch.save({"config": asdict(cfg), "model": model.state_dict(), "deviance": best}, cfg.checkpoint)
    elapsed = time.perf_counter() - start

    print(f"best held-out deviance {best:.4f}")
    rate = cfg.steps * cfg.batch_size / elapsed
    print(f"{rate:.1f} records/s")


if __name__ == "__main__":
    main(Config())
