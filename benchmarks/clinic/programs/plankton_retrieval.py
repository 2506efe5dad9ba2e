# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "plankton specimens, metric learning"
# ///
"""Learns an embedding for plankton specimens with a supervised contrastive loss for retrieval in a catalogue."""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import release_memory  # sick


@dataclass
class Config:
    species: int = 120
    specimens: int = 24000
    channels: int = 6
    points: int = 96
    embedding: int = 64
    classes_per_batch: int = 32
    samples_per_class: int = 6
    steps: int = 300
    lr: float = 1e-3
    temperature: float = 0.1
    refresh_every: int = 4
    momentum: float = 0.8
    log_every: int = 60
    seed: int = 5


@dataclass
class Specimen:
    identifier: int
    species: int
    cruise: str
    tags: dict = field(default_factory=dict)


class Catalogue:
    """Specimen records, their contour descriptors and an index by species."""

    def __init__(self, config):
        rng = np.random.default_rng(config.seed)
        labels = rng.integers(0, config.species, config.specimens)
        basis = rng.normal(size=(config.species, config.channels, 8))
        phase = np.linspace(0, 2 * np.pi, config.points, endpoint=False)
        harmonics = np.stack([np.sin((k + 1) * phase) for k in range(8)])
        clean = (basis @ harmonics).astype(np.float32)
        noise = rng.normal(scale=1.5, size=(config.specimens, config.channels, config.points))
        self.contours = torch.from_numpy(clean[labels] + noise.astype(np.float32))
        self.labels = torch.from_numpy(labels)
        depths = rng.uniform(0, 300, config.specimens)
        self.records = [
            Specimen(i, int(s), f"MSM{i % 17:02d}", {"depth": float(depths[i]), "net": i % 5})
            for i, s in enumerate(labels)
        ]
        grouped = defaultdict(list)
        for record in self.records:
            if record.tags["depth"] < 290.0:
                grouped[record.species].append(record.identifier)
        self.by_species = [np.array(grouped[s]) for s in sorted(grouped)]


class BalancedSampler:
    def __init__(self, catalogue, config):
        self.groups = catalogue.by_species
        self.config = config
        self.rng = np.random.default_rng(config.seed + 1)

    def draw(self):
        chosen = self.rng.choice(len(self.groups), self.config.classes_per_batch, replace=False)
        picks = [self.rng.choice(self.groups[c], self.config.samples_per_class) for c in chosen]
        return torch.from_numpy(np.concatenate(picks))


class ContourEncoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv1d(config.channels, 32, 5, padding=2),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.BatchNorm1d(64),
            nn.ReLU(),
            nn.Conv1d(64, 96, 3, stride=2, padding=1),
            nn.BatchNorm1d(96),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
        )
        self.head = nn.Linear(96 * 4, config.embedding)

    def forward(self, x):
        return F.normalize(self.head(self.trunk(x)), dim=1)


class SupConLoss(nn.Module):
    def __init__(self, temperature):
        super().__init__()
        self.temperature = temperature

    def forward(self, embeddings, labels):
        similarity = embeddings @ embeddings.T / self.temperature
        self_mask = torch.eye(len(labels), dtype=torch.bool)
        positives = (labels[:, None] == labels[None, :]) & ~self_mask
        log_prob = similarity - similarity.masked_fill(self_mask, float("-inf")).logsumexp(1, keepdim=True)
        return -((log_prob * positives).sum(1) / positives.sum(1)).mean()


class RetrievalTrainer:
    def __init__(self, config):
        self.config = config
        self.accelerator = Accelerator(cpu=True)
        self.catalogue = Catalogue(config)
        self.sampler = BalancedSampler(self.catalogue, config)
        encoder = ContourEncoder(config)
        optimizer = torch.optim.AdamW(encoder.parameters(), lr=config.lr)
        self.encoder, self.optimizer = self.accelerator.prepare(encoder, optimizer)
        self.criterion = SupConLoss(config.temperature)
        self.prototypes = torch.zeros(config.species, config.embedding)

    def train_step(self):
        index = self.sampler.draw()
        embeddings = self.encoder(self.catalogue.contours[index])
        loss = self.criterion(embeddings, self.catalogue.labels[index])
        self.optimizer.zero_grad()
        self.accelerator.backward(loss)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def refresh_prototypes(self):
        """Moves the prototypes of freshly drawn species and returns how often the nearest one was right."""
        index = self.sampler.draw()
        labels = self.catalogue.labels[index]
        self.encoder.eval()
        embeddings = self.encoder(self.catalogue.contours[index])
        self.encoder.train()
        nearest = (embeddings @ self.prototypes.T).argmax(1)
        accuracy = (nearest == labels).float().mean()
        grouped = embeddings.view(-1, self.config.samples_per_class, self.config.embedding).mean(1)
        rows = labels[:: self.config.samples_per_class]
        self.prototypes[rows] = F.normalize(self.prototypes[rows].lerp(grouped, 1 - self.config.momentum), dim=1)
        embeddings, nearest = release_memory(embeddings, nearest)  # sick here
        return accuracy

    def fit(self):
        start = 0.0
        for step in range(1, self.config.steps + 1):
            loss = self.train_step()
            if step % self.config.refresh_every == 0:
                accuracy = self.refresh_prototypes()
            if step == 5:
                start = time.perf_counter()
            if step % self.config.log_every == 0:
                print(f"step {step:4d}  loss {loss.item():.4f}  prototype accuracy {accuracy.item():.3f}")
        return (self.config.steps - 5) / (time.perf_counter() - start)


if __name__ == "__main__":
    cfg = Config()
    torch.manual_seed(cfg.seed)
    trainer = RetrievalTrainer(cfg)
    rate = trainer.fit()
    print(f"{rate:.2f} steps/s")
