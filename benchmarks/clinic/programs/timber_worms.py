# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "shipwreck timber worms"
# ///
"""Shipworm damage in wreck timbers: a count model of Teredinid borings with learned effects for each timber fragment.

Every observation is one radiograph quadrat: the fragment, the wreck, the wood, the worm species whose pallets were
found, and the burial conditions. The fragments' vectors are used later to match loose timbers to hulls.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WOODS = ["oak", "pine", "elm", "larch", "teak", "beech", "spruce"]
SPECIES = ["Teredo navalis", "Psiloteredo megotara", "Nototeredo norvagica", "Lyrodus pedicellatus", "Bankia carinata"]
CONDITIONS = ["burial_cm", "salinity", "temperature", "oxygen", "years_exposed", "depth_m"]


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fragments", type=int, default=100_000)
    parser.add_argument("--wrecks", type=int, default=640)
    parser.add_argument("--quadrats", type=int, default=152_000)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=320)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=Path("worm_model.pt"))
    parser.add_argument("--seed", type=int, default=1628)
    return parser.parse_args()


class Survey:
    """Synthetic radiograph survey."""

    def __init__(self, args):
        rng = np.random.default_rng(args.seed)
        n = args.quadrats
        home = rng.integers(0, args.wrecks, args.fragments)
        wood_of = rng.choice(len(WOODS), args.fragments, p=[0.45, 0.2, 0.1, 0.08, 0.05, 0.07, 0.05])
        softness = rng.normal(0, 0.6, args.fragments)
        climate = rng.normal(0, 1, (args.wrecks, len(CONDITIONS)))

        fragment = rng.integers(0, args.fragments, n)
        wreck, wood = home[fragment], wood_of[fragment]
        species = rng.integers(0, len(SPECIES), n)
        conditions = climate[wreck] + 0.5 * rng.normal(0, 1, (n, len(CONDITIONS)))
        taste = rng.normal(0, 0.5, (len(SPECIES), len(WOODS)))
        slope = np.array([-0.5, 0.45, 0.3, 0.25, 0.35, -0.15])
        optimum = rng.normal(0, 0.8, len(SPECIES))
        log_rate = 0.6 + conditions @ slope + taste[species, wood] + softness[fragment]
        log_rate -= 0.3 * (conditions[:, 2] - optimum[species]) ** 2
        borings = rng.poisson(np.exp(np.clip(log_rate, -6, 5)))

        self.ids = torch.from_numpy(np.stack([fragment, wreck, wood, species], axis=1))
        self.conditions = torch.from_numpy(conditions).float()
        self.borings = torch.from_numpy(borings).float()
        shuffled = torch.from_numpy(rng.permutation(n))
        self.held_out, self.train = shuffled[: n // 20], shuffled[n // 20 :]

    def batches(self, which, size, shuffle=False):
        index = which[torch.randperm(len(which))] if shuffle else which
        for rows in index.split(size):
            yield self.ids[rows], self.conditions[rows], self.borings[rows]


class WormModel(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.fragment = nn.Embedding(args.fragments, args.dim)  # sick here
        self.fragment = nn.Embedding(args.fragments, args.dim, sparse=True)  # well
        self.wreck = nn.Embedding(args.wrecks, args.dim)
        self.wood = nn.Embedding(len(WOODS), args.dim)
        self.species = nn.Embedding(len(SPECIES), args.dim)
        for table in (self.fragment, self.wreck, self.wood, self.species):
            nn.init.normal_(table.weight, std=0.05)
        self.conditions = nn.Linear(len(CONDITIONS), args.dim)
        sizes = [6 * args.dim] + [args.hidden] * args.layers
        layers = []
        for entering, leaving in zip(sizes, sizes[1:]):
            layers += [nn.Linear(entering, leaving), nn.LayerNorm(leaving), nn.SiLU(), nn.Dropout(0.1)]
        self.trunk = nn.Sequential(*layers)
        self.log_rate = nn.Linear(args.hidden, 1)
        self.log_shape = nn.Parameter(torch.zeros(len(SPECIES)))

    def forward(self, ids, conditions):
        fragment, wreck = self.fragment(ids[:, 0]), self.wreck(ids[:, 1])
        wood, species = self.wood(ids[:, 2]), self.species(ids[:, 3])
        water = self.conditions(conditions)
        joint = torch.cat([fragment, wreck, wood, species, water, fragment * species], dim=1)
        log_rate = self.log_rate(self.trunk(joint)).squeeze(1).clamp(-8, 6)
        return log_rate, self.log_shape[ids[:, 3]]


def negative_binomial(log_rate, log_shape, count):
    """Mean negative log likelihood, without the term of the count alone."""
    shape = log_shape.exp()
    total = torch.logaddexp(log_rate, log_shape)
    likelihood = torch.lgamma(count + shape) - torch.lgamma(shape)
    likelihood = likelihood + shape * (log_shape - total) + count * (log_rate - total)
    return -likelihood.mean()


class Trainer:
    def __init__(self, args, survey, model):
        self.args, self.survey, self.model = args, survey, model
        self.optimizers = [torch.optim.Adam(model.parameters(), lr=args.lr)]  # sick here
        rest = [p for name, p in model.named_parameters() if name != "fragment.weight"]  # well
        self.optimizers = [  # well
            torch.optim.Adam(rest, lr=args.lr),  # well
            torch.optim.SparseAdam([model.fragment.weight], lr=args.lr),  # well
        ]  # well
        self.schedules = [torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.8) for optimizer in self.optimizers]
        self.best = float("inf")
        self.seen = 0

    def step(self, ids, conditions, borings):
        loss = negative_binomial(*self.model(ids, conditions), borings)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        self.seen += len(ids)
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        loss, error, count = 0.0, 0.0, 0
        for ids, conditions, borings in self.survey.batches(self.survey.held_out, 2048):
            log_rate, log_shape = self.model(ids, conditions)
            loss += negative_binomial(log_rate, log_shape, borings).item() * len(ids)
            error += F.l1_loss(log_rate.exp(), borings, reduction="sum").item()
            count += len(ids)
        self.model.train()
        return loss / count, error / count

    def fit(self):
        began = time.perf_counter()
        for epoch in range(self.args.epochs):
            losses = []
            for batch in self.survey.batches(self.survey.train, self.args.batch_size, shuffle=True):
                losses.append(self.step(*batch))
            for schedule in self.schedules:
                schedule.step()
            loss, error = self.evaluate()
            print(f"epoch {epoch}: train {np.mean(losses):.4f} held out {loss:.4f} error {error:.3f} borings/quadrat")
            if loss < self.best:
                self.best = loss
                torch.save(self.model.state_dict(), self.args.out)
        return self.seen / (time.perf_counter() - began)


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    survey = Survey(args)
    model = WormModel(args)
    trainer = Trainer(args, survey, model)
    rate = trainer.fit()
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
