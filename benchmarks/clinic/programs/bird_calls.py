# /// clinic
# expect = ["PD05.mixed-lengths", "PD05.padded-batches"]
# stratum = "twins"
# domain = "audio classification, bird calls"
# ///
"""Trains a small convolution-transformer to name the species in log-mel recordings of bird calls."""

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader


@dataclass
class Config:
    recordings: int = 480
    species: int = 24
    mels: int = 64
    max_frames: int = 800
    dim: int = 96
    layers: int = 2
    batch_size: int = 8
    epochs: int = 4
    lr: float = 5e-4
    seed: int = 3


def synthesise(cfg):
    rng = np.random.default_rng(cfg.seed)
    frames = np.clip(rng.lognormal(np.log(140), 0.65, cfg.recordings), 48, cfg.max_frames).astype(int)
    labels = rng.integers(0, cfg.species, cfg.recordings)
    centre = rng.uniform(8, 56, cfg.species)
    rate = rng.uniform(0.02, 0.2, cfg.species)
    clips = []
    mel = np.arange(cfg.mels)
    for n, species in zip(frames, labels):
        t = np.arange(n)
        pitch = centre[species] + 6 * np.sin(2 * np.pi * rate[species] * t + rng.uniform(0, 6))
        spec = 2.5 * np.exp(-(((mel[None] - pitch[:, None]) / 3) ** 2)) + rng.normal(0, 0.5, (n, cfg.mels))
        clips.append((torch.from_numpy(spec.astype(np.float32)), int(species)))
    return clips


class Collate:
    """Stacks recordings of different lengths and returns the number of valid frames of each."""

    def __init__(self, max_frames):
        self.max_frames = max_frames

    def __call__(self, samples):
        lengths = torch.tensor([min(len(spec), self.max_frames) for spec, _ in samples])
        width = self.max_frames  # sick here
        width = int(lengths.max())  # well
        batch = torch.zeros(len(samples), width, samples[0][0].shape[1])
        for row, (spec, _) in enumerate(samples):
            batch[row, : lengths[row]] = spec[: self.max_frames]
        return batch, lengths, torch.tensor([label for _, label in samples])


def valid_mask(lengths, width):
    return torch.arange(width)[None] < lengths[:, None]


class CallClassifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.conv1 = nn.Conv1d(cfg.mels, cfg.dim, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(cfg.dim, cfg.dim, 3, stride=2, padding=1)
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 2 * cfg.dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        position = torch.arange(cfg.max_frames // 4 + 1)[:, None]
        angle = position / 10000 ** (torch.arange(0, cfg.dim, 2)[None] / cfg.dim)
        self.register_buffer("position", torch.cat([angle.sin(), angle.cos()], dim=1), persistent=False)
        self.norm = nn.LayerNorm(cfg.dim)
        self.out = nn.Linear(cfg.dim, cfg.species)

    def forward(self, spec, lengths):
        x = spec.transpose(1, 2)
        for conv in (self.conv1, self.conv2):
            x = F.gelu(conv(x))
            lengths = (lengths + 1) // 2
            x = x * valid_mask(lengths, x.shape[2])[:, None]
        x = x.transpose(1, 2) + self.position[: x.shape[2]]
        mask = valid_mask(lengths, x.shape[1])
        x = self.norm(self.encoder(x, src_key_padding_mask=~mask))
        pooled = (x * mask[..., None]).sum(dim=1) / lengths[:, None]
        return self.out(pooled)


def train(cfg):
    torch.manual_seed(cfg.seed)
    loader = DataLoader(
        synthesise(cfg), batch_size=cfg.batch_size, shuffle=True, drop_last=True, collate_fn=Collate(cfg.max_frames)
    )
    model = CallClassifier(cfg)
    total = cfg.epochs * len(loader)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=total)
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        running = torch.zeros(())
        for spec, lengths, labels in loader:
            if step == 5:
                start = time.perf_counter()
            loss = F.cross_entropy(model(spec, lengths), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.detach()
            step += 1
        print(f"epoch {epoch}: loss {running.item() / len(loader):.4f}")
    print(f"{(step - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    train(Config())
