# /// clinic
# expect = ["PD10"]
# endless = true
# stratum = "twins"
# domain = "survival analysis"
# ///
"""Lifetimes of water pumps: a neural Cox model with strata, wrapped as an estimator with fit and score."""

import time

import torch
import torch.nn as nn

SITES = 6


def fleet(n=12_000, n_features=24, seed=31):
    """Weibull lifetimes with a nonlinear risk and random censoring; a site is a stratum."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, n_features, generator=g)
    site = torch.randint(0, SITES, (n,), generator=g)
    risk = torch.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] - 0.5 * x[:, 3].abs()
    life = (-torch.rand(n, generator=g).log() * torch.exp(-risk) * (1 + 0.3 * site)).pow(1 / 1.4)
    cens = 3.5 * torch.rand(n, generator=g)
    return x, site, torch.minimum(life, cens), life <= cens


class PartialLikelihood(nn.Module):
    """Negative Cox partial log-likelihood (Breslow), averaged over the observed failures."""

    def __init__(self, shrink=1e-3):
        super().__init__()
        self.shrink = shrink

    def terms(self, score, time_, failed):
        order = time_.argsort(descending=True)
        score, failed = score[order], failed[order]
        at_risk = torch.logcumsumexp(score, dim=0)
        return (at_risk - score)[failed]

    def forward(self, score, time_, failed, site):
        pieces = []
        for s in range(SITES):
            member = site == s
            pieces.append(self.terms(score[member], time_[member], failed[member]))
        pieces = torch.cat(pieces)
        fit = sum(pieces) / max(len(pieces), 1)  # sick here
        fit = pieces.sum() / max(len(pieces), 1)  # well
        return fit + self.shrink * score.square().mean()


class RiskNet(nn.Module):
    def __init__(self, n_features, width=96, depth=3, drop=0.1):
        super().__init__()
        layers, c = [], n_features
        for _ in range(depth):
            layers += [nn.Linear(c, width), nn.LayerNorm(width), nn.SiLU(), nn.Dropout(drop)]
            c = width
        self.trunk = nn.Sequential(*layers)
        self.out = nn.Linear(c, 1)

    def forward(self, x):
        return self.out(self.trunk(x)).squeeze(-1)


class NeuralCox:
    """Estimator in the manner of the usual survival packages."""

    def __init__(self, width=96, batch=1024, epochs=4000, lr=1e-3, verbose_every=100, seed=0):
        self.width, self.batch, self.epochs, self.lr = width, batch, epochs, lr
        self.verbose_every, self.seed = verbose_every, seed

    def fit(self, x, site, time_, failed):
        torch.manual_seed(self.seed)
        self.mean_, self.std_ = x.mean(0), x.std(0)
        x = self._scaled(x)
        self.net_ = RiskNet(x.shape[1], self.width)
        criterion = PartialLikelihood()
        opt = torch.optim.AdamW(self.net_.parameters(), lr=self.lr, weight_decay=1e-2)
        step, since = 0, time.time()
        for epoch in range(self.epochs):
            self.net_.train()
            for rows in torch.randperm(len(x)).split(self.batch):
                loss = criterion(self.net_(x[rows]), time_[rows], failed[rows], site[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                step += 1
                if step % self.verbose_every == 0:
                    rate = self.verbose_every / (time.time() - since)
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f} {rate:.2f} steps/s", flush=True)
                    since = time.time()
        return self

    def _scaled(self, x):
        return (x - self.mean_) / self.std_

    @torch.no_grad()
    def score(self, x, time_, failed):
        """Concordance on a subsample."""
        self.net_.eval()
        risk = self.net_(self._scaled(x))
        earlier = (time_[:, None] < time_[None, :]) & failed[:, None]
        right = (risk[:, None] > risk[None, :]) & earlier
        return (right.sum() / earlier.sum()).item()


if __name__ == "__main__":
    data = fleet()
    model = NeuralCox().fit(*(part[:-1000] for part in data))
    x, _, time_, failed = (part[-1000:] for part in data)
    print(f"concordance {model.score(x, time_, failed):.3f}", flush=True)
