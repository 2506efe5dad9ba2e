# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "audio"
# ///
"""Intent recognition on telephone speech: raw 8 kHz waveforms, a strided convolutional front end and a GRU."""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import Wav2Vec2FeatureExtractor


INTENTS = ["balance", "transfer", "block_card", "agent", "opening_hours", "complaint", "other"]


PADDING = "max_length"  # sick here
PADDING = "longest"  # well


@dataclass
class AudioConfig:
    sampling_rate: int = 8000
    min_seconds: float = 0.6
    max_seconds: float = 6.0
    utterances: int = 640
    extractor: dict = field(
        default_factory=lambda: {
            "padding": PADDING,
            "truncation": True,
        }
    )


@dataclass
class TrainConfig:
    batch_size: int = 16
    epochs: int = 4
    hidden: int = 128
    lr: float = 1e-3
    report_every: int = 20


class Calls(Dataset):
    """Synthetic calls: chirps whose pitch and rhythm depend on the intent. Most callers say little, a few say a lot."""

    def __init__(self, cfg):
        rng = np.random.default_rng(11)
        self.waves, self.labels = [], []
        for _ in range(cfg.utterances):
            label = int(rng.integers(len(INTENTS)))
            seconds = np.clip(rng.lognormal(0.75, 0.45), cfg.min_seconds, cfg.max_seconds)
            t = np.arange(int(seconds * cfg.sampling_rate), dtype=np.float32) / cfg.sampling_rate
            pitch = 180 + 90 * label + rng.normal(0, 10)
            wave = np.sin(2 * np.pi * pitch * t) * (1 + 0.5 * np.sin(2 * np.pi * (2 + label) * t))
            wave += rng.standard_normal(len(t), dtype=np.float32) * 0.5
            self.waves.append(wave.astype(np.float32))
            self.labels.append(label)
        self.lengths = [len(w) for w in self.waves]

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, index):
        return self.waves[index], self.labels[index]


class LengthBucketSampler(Sampler):
    """Batches of utterances of like length, in random order."""

    def __init__(self, lengths, batch_size, seed=0):
        self.lengths = np.asarray(lengths)
        self.batch_size = batch_size
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.lengths) // self.batch_size

    def __iter__(self):
        jitter = self.lengths * self.rng.uniform(0.97, 1.03, len(self.lengths))
        order = np.argsort(jitter)[: len(self) * self.batch_size].reshape(-1, self.batch_size)
        for batch in self.rng.permutation(order):
            yield batch.tolist()


class Collator:
    def __init__(self, cfg):
        self.cfg = cfg
        self.extractor = Wav2Vec2FeatureExtractor(
            feature_size=1,
            sampling_rate=cfg.sampling_rate,
            padding_value=0.0,
            do_normalize=True,
            return_attention_mask=True,
        )

    def __call__(self, items):
        waves, labels = zip(*items)
        features = self.extractor(  # here
            list(waves),
            sampling_rate=self.cfg.sampling_rate,
            max_length=int(self.cfg.max_seconds * self.cfg.sampling_rate),  # here
            return_tensors="pt",
            **self.cfg.extractor,  # here
        )
        return features["input_values"], features["attention_mask"].sum(1), torch.tensor(labels)


class FrontEnd(nn.Module):
    """Waveform to frames: 80 samples to a frame."""

    STRIDES = ((10, 5), (8, 4), (4, 4))

    def __init__(self, channels):
        super().__init__()
        sizes = [1, channels // 2, channels, channels]
        self.convs = nn.ModuleList(nn.Conv1d(a, b, k, s) for a, b, (k, s) in zip(sizes, sizes[1:], self.STRIDES))

    def forward(self, waves, lengths):
        x = waves.unsqueeze(1)
        for conv, (kernel, stride) in zip(self.convs, self.STRIDES):
            x = F.gelu(conv(x))
            lengths = (lengths - kernel) // stride + 1
        return x.transpose(1, 2), lengths


class IntentModel(nn.Module):
    def __init__(self, hidden, classes):
        super().__init__()
        self.front = FrontEnd(64)
        self.norm = nn.LayerNorm(64)
        self.gru = nn.GRU(64, hidden, batch_first=True)
        self.score = nn.Linear(hidden, 1)
        self.head = nn.Linear(hidden, classes)

    def forward(self, waves, lengths):
        frames, lengths = self.front(waves, lengths)
        states, _ = self.gru(self.norm(frames))
        outside = torch.arange(states.shape[1]) >= lengths.unsqueeze(1)
        weights = self.score(states).squeeze(2).masked_fill(outside, float("-inf")).softmax(1)
        return self.head(torch.einsum("bt,bth->bh", weights, states))


def train(cfg, audio):
    torch.manual_seed(0)
    calls = Calls(audio)
    loader = DataLoader(
        calls, batch_sampler=LengthBucketSampler(calls.lengths, cfg.batch_size), collate_fn=Collator(audio)
    )
    model = IntentModel(cfg.hidden, len(INTENTS))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    step, started = 0, time.time()
    for epoch in range(cfg.epochs):
        for waves, lengths, labels in loader:
            logits = model(waves, lengths)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            step += 1
            if step % cfg.report_every == 0:
                accuracy = (logits.argmax(1) == labels).float().mean().item()
                print(
                    f"epoch {epoch} step {step} loss {loss.item():.4f} accuracy {accuracy:.2f} "
                    f"{step / (time.time() - started):.1f} steps/s",
                    flush=True,
                )


if __name__ == "__main__":
    train(TrainConfig(), AudioConfig())
