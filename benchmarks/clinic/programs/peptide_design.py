# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "antimicrobial peptide generation with REINFORCE"
# ///
"""Peptides against bacteria: a recurrent generator that is trained to write charged, amphipathic, new sequences.

REINFORCE with a running baseline. A peptide that the run has already written earns less, so that the generator keeps exploring.
"""

import sys
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
START = len(RESIDUES)
CHARGE = torch.tensor([{"K": 1.0, "R": 1.0, "H": 0.3, "D": -1.0, "E": -1.0}.get(r, 0.0) for r in RESIDUES])
HYDROPHOBIC = torch.tensor(
    [{"A": 0.3, "F": 1.2, "I": 1.4, "L": 1.1, "M": 0.6, "V": 1.1, "W": 0.8}.get(r, -0.4) for r in RESIDUES]
)


@dataclass
class Settings:
    length: int = 24
    batch: int = 64
    hidden: int = 128
    steps: int = 600
    lr: float = 5e-4
    entropy: float = 0.05
    novelty: float = 0.5
    report_every: int = 20


class PeptideWriter(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embed = nn.Embedding(len(RESIDUES) + 1, 64)
        self.gru = nn.GRU(64, hidden, batch_first=True)
        self.out = nn.Linear(hidden, len(RESIDUES))

    def forward(self, residues, state=None):
        hidden, state = self.gru(self.embed(residues), state)
        return self.out(hidden), state

    @torch.no_grad()
    def write(self, count, length):
        token = torch.full((count, 1), START)
        state, written = None, []
        for _ in range(length):
            logits, state = self(token, state)
            token = torch.multinomial(logits[:, -1].softmax(dim=-1), 1)
            written.append(token)
        return torch.cat(written, dim=1)


class Activity:
    """Stand-in for an assay: net charge near +6 and a large hydrophobic moment of the helix."""

    def __init__(self, length):
        angle = torch.arange(length) * (100 * torch.pi / 180)
        self.helix = torch.stack([angle.cos(), angle.sin()])

    def __call__(self, peptides):
        charge = CHARGE[peptides].sum(dim=1)
        moment = (HYDROPHOBIC[peptides] @ self.helix.T).norm(dim=1) / peptides.shape[1]
        return torch.exp(-((charge - 6) / 4).pow(2)) + 2 * moment


class Archive:
    """What the run has written so far."""

    def __init__(self):
        self.written = []  # sick here
        self.written = set()  # well

    def add(self, peptide):
        """True if the peptide is new."""
        if peptide in self.written:  # here
            return False
        self.written.append(peptide)  # sick here
        self.written.add(peptide)  # well
        return True

    def __len__(self):
        return len(self.written)


class DesignTrainer:
    def __init__(self, settings):
        self.settings = settings
        self.writer = PeptideWriter(settings.hidden)
        self.optimizer = torch.optim.Adam(self.writer.parameters(), lr=settings.lr)
        self.activity = Activity(settings.length)
        self.archive = Archive()
        self.baseline = None

    def judge(self, peptides):
        reward = self.activity(peptides)
        texts = ["".join(RESIDUES[r] for r in row) for row in peptides.tolist()]
        new = torch.tensor([self.archive.add(text) for text in texts], dtype=torch.float32)  # here
        return reward + self.settings.novelty * new, texts, new

    def step(self):
        s = self.settings
        peptides = self.writer.write(s.batch, s.length)
        reward, texts, new = self.judge(peptides)
        mean = reward.mean().item()
        self.baseline = mean if self.baseline is None else 0.9 * self.baseline + 0.1 * mean
        inputs = F.pad(peptides[:, :-1], (1, 0), value=START)
        logp = self.writer(inputs)[0].log_softmax(dim=-1)
        chosen = logp.gather(2, peptides.unsqueeze(2)).squeeze(2).sum(dim=1)
        entropy = -(logp.exp() * logp).sum(dim=-1).mean()
        loss = -((reward - self.baseline) * chosen).mean() / s.length - s.entropy * entropy
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.writer.parameters(), 1.0)
        self.optimizer.step()
        return mean, entropy.detach(), new, texts[int(reward.argmax())]

    def fit(self):
        begun = time.time()
        for step in range(1, self.settings.steps + 1):
            reward, entropy, new, best = self.step()
            if step % self.settings.report_every == 0:
                print(
                    f"step {step} reward {reward:.3f} entropy {entropy.item():.2f} new {new.mean().item():.0%} "
                    f"archive {len(self.archive)} best {best} {time.time() - begun:.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    torch.manual_seed(8)
    DesignTrainer(Settings()).fit()
    sys.exit(0)
