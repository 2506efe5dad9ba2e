# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "puffin colonies, fledging times"
# ///
#!/usr/bin/env python
"""When do pufflings leave the burrow?  A deep Cox model on burrow loggers.

Each chick has a logger with four channels (burrow temperature, humidity, feeding visits, weight plate)
and a few colony covariates.  Time is days until fledging; chicks whose logger failed are censored.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Colony:
    logger: torch.Tensor  # [n, 4, hours]
    covariates: torch.Tensor  # [n, 6]
    days: torch.Tensor  # [n]
    fledged: torch.Tensor  # [n] bool, False where censored

    def __len__(self):
        return len(self.days)

    def take(self, rows):
        return Colony(self.logger[rows], self.covariates[rows], self.days[rows], self.fledged[rows])


def simulate_colony(n, hours, seed):
    rng = np.random.default_rng(seed)
    covariates = rng.normal(size=(n, 6))
    visits = rng.uniform(0.5, 3.0, n)
    slope = rng.normal(0.0, 1.0, n)
    hour = np.arange(hours) / 24.0
    daily = np.sin(2 * np.pi * (hour[None] + rng.uniform(0, 1, (n, 1))))
    temperature = daily * rng.uniform(0.2, 1.0, (n, 1))
    humidity = -0.5 * temperature + rng.normal(scale=0.5, size=(n, hours))
    feeding = rng.poisson(visits[:, None] / 6.0, size=(n, hours))
    weight = slope[:, None] * hour[None] / hour.max() + 0.1 * np.cumsum(feeding - visits[:, None] / 6.0, axis=1)
    logger = np.stack([temperature, humidity, feeding, weight], axis=1)
    logger += rng.normal(scale=0.2, size=logger.shape)

    log_hazard = 0.9 * (visits - 1.75) + 0.8 * slope + 0.5 * covariates[:, 0] - 0.4 * covariates[:, 1] ** 2
    days = 42.0 * rng.weibull(6.0, n) * np.exp(-log_hazard / 6.0)
    failure = rng.uniform(25.0, 75.0, n)
    observed = np.minimum(days, failure)
    return Colony(
        torch.from_numpy(logger).float(),
        torch.from_numpy(covariates).float(),
        torch.from_numpy(observed).float(),
        torch.from_numpy(days <= failure),
    )


class BurrowNet(nn.Module):
    def __init__(self, width=28):
        super().__init__()
        self.trace = nn.Sequential(
            nn.Conv1d(4, width, 7, stride=2, padding=3),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv1d(2 * width, 2 * width, 3, padding=1),
            nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(2 * width + 6, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, logger, covariates):
        pooled = self.trace(logger).mean(dim=2)
        return self.head(torch.cat([pooled, covariates], dim=1)).squeeze(1)


def partial_likelihood(risk, days, fledged):
    """Negative Cox partial log-likelihood per event (Breslow; ties have measure zero here)."""
    total = risk.new_zeros(())  # sick
    for i in torch.nonzero(fledged).flatten().tolist():  # sick here
        at_risk = risk[days >= days[i]]  # sick here
        total = total - (risk[i] - torch.logsumexp(at_risk, dim=0))  # sick here
    return total / fledged.sum().clamp(min=1)  # sick
    order = torch.argsort(days, descending=True)  # well
    risk, fledged = risk[order], fledged[order]  # well
    log_at_risk = torch.logcumsumexp(risk, dim=0)  # well
    total = torch.where(fledged, log_at_risk - risk, 0.0).sum()  # well
    return total / fledged.sum().clamp(min=1)  # well


def concordance(risk, days, fledged):
    """Harrell's C over all comparable pairs."""
    earlier = (days[:, None] < days[None, :]) & fledged[:, None]
    right = (risk[:, None] > risk[None, :]) & earlier
    return right.sum().item() / earlier.sum().item()


@torch.no_grad()
def predict(model, colony, batch_size):
    model.eval()
    parts = [
        model(logger, covariates)
        for logger, covariates in zip(colony.logger.split(batch_size), colony.covariates.split(batch_size))
    ]
    model.train()
    return torch.cat(parts)


def train(args):
    torch.manual_seed(args.seed)
    colony = simulate_colony(args.chicks, args.hours, args.seed)
    held_out = simulate_colony(1000, args.hours, args.seed + 1)
    print(f"{len(colony)} chicks, {colony.fledged.float().mean():.0%} fledged under observation")

    model = BurrowNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    steps = len(colony) // args.batch_size
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * steps)

    start = time.perf_counter()
    for epoch in range(args.epochs):
        running = 0.0
        for rows in torch.randperm(len(colony))[: steps * args.batch_size].split(args.batch_size):
            batch = colony.take(rows)
            risk = model(batch.logger, batch.covariates)
            loss = partial_likelihood(risk, batch.days, batch.fledged)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            running += loss.item()
        c = concordance(predict(model, held_out, 250), held_out.days, held_out.fledged)
        print(f"epoch {epoch + 1:3d}/{args.epochs}  loss {running / steps:.4f}  held-out C {c:.3f}")
    print(f"total training seconds: {time.perf_counter() - start:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chicks", type=int, default=6144)
    parser.add_argument("--hours", type=int, default=192)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=44)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=3)
    train(parser.parse_args())
