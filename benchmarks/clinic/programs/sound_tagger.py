# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "audio"
# ///
"""Tagging of environmental sounds.

Synthetic one-second clips (tones, chirps, pulse trains, noise bursts) are turned into
log-mel features with SciPy once; a small convolution + attention model is then
trained to name the sound.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy import signal
from torch import nn
from torch.utils.data import DataLoader, Dataset


RATE = 8000
MELS = 40
KINDS = ["tone", "rising", "falling", "pulses", "noise", "tremolo"]


@dataclass
class Config:
    clips: int = 480
    batch_size: int = 16
    epochs: int = 7
    width: int = 128
    layers: int = 3
    lr: float = 1e-3
    log_every: int = 40


def synthesize(kind, rng):
    t = np.arange(RATE) / RATE
    low, high = rng.uniform(200, 900), rng.uniform(1200, 3500)
    if kind == "tone":
        wave = np.sin(2 * np.pi * low * t)
    elif kind == "rising":
        wave = signal.chirp(t, low, 1.0, high)
    elif kind == "falling":
        wave = signal.chirp(t, high, 1.0, low)
    elif kind == "pulses":
        wave = signal.square(2 * np.pi * rng.uniform(5, 12) * t, 0.05) * np.sin(2 * np.pi * high * t)
    elif kind == "noise":
        wave = rng.normal(size=t.size) * np.exp(-t * rng.uniform(1, 5))
    else:
        wave = np.sin(2 * np.pi * high * t) * (1 + np.sin(2 * np.pi * rng.uniform(3, 9) * t)) / 2
    return wave + rng.normal(0, 0.1, t.size)


def mel_filterbank(bins):
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    hertz = 700 * (10 ** (np.linspace(0, top, MELS + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, bins)
    left, centre, right = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    rise = (freqs - left) / (centre - left)
    fall = (right - freqs) / (right - centre)
    return np.maximum(0, np.minimum(rise, fall))


class SoundDataset(Dataset):
    def __init__(self, clips, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, len(KINDS), clips)
        bank = mel_filterbank(129)
        features = []
        for label in self.labels:
            wave = synthesize(KINDS[label], rng)
            _, _, spectrum = signal.stft(wave, RATE, nperseg=256, noverlap=176)
            features.append(np.log(bank @ np.abs(spectrum) ** 2 + 1e-8))
        features = np.stack(features)
        features = (features - features.mean()) / features.std()
        self.features = torch.from_numpy(features)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.features[index], int(self.labels[index])


class SoundTagger(nn.Module):
    def __init__(self, width, layers, classes):
        super().__init__()
        self.stem = nn.Conv1d(MELS, width, 3, padding=1)
        layer = nn.TransformerEncoderLayer(
            width, 4, width * 4, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, features):
        x = self.stem(features).transpose(1, 2)
        return self.head(self.encoder(x).mean(1))


class Trainer:
    def __init__(self, model, dataset, config):
        self.config = config
        self.model = model.double()  # sick here
        dataset.features = dataset.features.float()  # well
        self.model = model  # well
        self.loader = DataLoader(dataset, config.batch_size, shuffle=True, drop_last=True)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=config.lr, fused=True)
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0

    def train_batch(self, features, labels):
        self.optimizer.zero_grad()
        logits = self.model(features)
        loss = self.criterion(logits, labels)
        loss.backward()
        self.optimizer.step()
        return loss.item(), (logits.argmax(1) == labels).sum().item()

    def fit(self):
        start = time.time()
        self.model.train()
        for epoch in range(self.config.epochs):
            correct = seen = 0
            for features, labels in self.loader:
                loss, right = self.train_batch(features, labels)
                correct += right
                seen += len(labels)
                self.step += 1
                if self.step % self.config.log_every == 0:
                    rate = self.step / (time.time() - start)
                    print(f"epoch {epoch} step {self.step} loss {loss:.4f} ({rate:.1f} steps/s)", flush=True)
            print(f"epoch {epoch} accuracy {correct / seen:.3f}", flush=True)


def main():
    torch.manual_seed(0)
    config = Config()
    dataset = SoundDataset(config.clips, seed=3)
    model = SoundTagger(config.width, config.layers, len(KINDS))
    Trainer(model, dataset, config).fit()


if __name__ == "__main__":
    main()
