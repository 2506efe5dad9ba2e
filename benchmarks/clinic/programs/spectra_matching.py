# /// clinic
# expect = ["PD03.slow-sampler"]
# stratum = "twins"
# domain = "mass spectrometry"
# sizes = {SCANS = [700000, 1000000], HIDDEN = [900, 1100]}
# ///
"""Embedding of binned MS/MS scans; scans of one peptide should land close together."""

import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

SCANS = 850000
HIDDEN = 1000
PEPTIDES = 12000
BINS = 64
P, K = 24, 4
STEPS_PER_EPOCH = 200
EPOCHS = 7


class ScanLibrary(Dataset):
    """Quantised intensities, one row a scan, in acquisition order."""

    def __init__(self, rng):
        templates = rng.gamma(0.4, 40.0, size=(PEPTIDES, BINS)).clip(0, 200).astype(np.uint8)
        self.peptide = rng.integers(0, PEPTIDES, SCANS)
        self.intensity = templates[self.peptide]
        self.intensity += rng.integers(0, 40, self.intensity.shape, dtype=np.uint8)

    def __len__(self):
        return len(self.peptide)

    def __getitems__(self, idx):
        x = torch.from_numpy(self.intensity[idx]).float().div_(64.0).sqrt_()
        return x - x.mean(1, keepdim=True), torch.from_numpy(self.peptide[idx])


class PeptideBatches(Sampler):
    """Batches of P peptides with K scans each."""

    def __init__(self, peptide, p, k, n_batches, seed=0):
        self.peptide, self.p, self.k, self.n_batches = peptide, p, k, n_batches
        self.rng = np.random.default_rng(seed)
        self.ids = np.unique(peptide)
        order = np.argsort(peptide, kind="stable")  # well
        cuts = np.searchsorted(peptide[order], self.ids)[1:]  # well
        self.scans_of = dict(zip(self.ids.tolist(), np.split(order, cuts)))  # well

    def __len__(self):
        return self.n_batches

    def __iter__(self):
        for _ in range(self.n_batches):
            batch = []
            for pep in self.rng.choice(self.ids, self.p, replace=False):
                pool = np.flatnonzero(self.peptide == pep)  # sick here
                pool = self.scans_of[int(pep)]  # well
                batch.extend(self.rng.choice(pool, self.k, replace=len(pool) < self.k).tolist())
            yield batch


class Encoder(nn.Module):
    def __init__(self, out=128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(BINS, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, out),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def contrast(z, y, tau=0.1):
    sim = z @ z.T / tau
    eye = torch.eye(len(z), dtype=torch.bool)
    same = (y[:, None] == y[None, :]) & ~eye
    logp = sim - sim.masked_fill(eye, float("-inf")).logsumexp(1, keepdim=True)
    return -(logp * same).sum(1).div(same.sum(1).clamp(min=1)).mean()


def main():
    torch.manual_seed(0)
    library = ScanLibrary(np.random.default_rng(1))
    loader = DataLoader(
        library,
        batch_sampler=PeptideBatches(library.peptide, P, K, STEPS_PER_EPOCH),
        collate_fn=lambda b: b,
    )
    model = Encoder()
    opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    seen, t0 = 0, None
    for epoch in range(EPOCHS):
        if epoch == 1:
            t0 = time.perf_counter()
        total = 0.0
        for x, y in loader:
            loss = contrast(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            if t0 is not None:
                seen += len(x)
        print(f"epoch {epoch}  loss {total / len(loader):.4f}", flush=True)
    print(f"done: {seen / (time.perf_counter() - t0):.1f} scans/s")


if __name__ == "__main__":
    main()
