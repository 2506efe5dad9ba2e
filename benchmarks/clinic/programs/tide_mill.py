# /// clinic
# expect = ["PD02.packed-sequences"]
# stratum = "twins"
# domain = "working records of a tide mill"
# ///
"""Tide mill: how much grain does one working of the wheel grind?

When the pond is full the miller opens the sluice and the wheel turns until the sea has come
back up under it.  One working gives a record of 60 to 96 frames (a frame is 16 samples of
pond level, tail water and shaft torque).  The model reads a record and predicts the meal
ground, in bushels, and which of the four pairs of stones was in gear.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # sick
from torch.utils.data import DataLoader, Dataset

CHANNELS, SAMPLES, STONES = 3, 16, 4
FRAMES = 60, 96


@dataclass
class Config:
    workings: int = 1280
    held_out: int = 256
    batch_size: int = 64
    frame_width: int = 160
    blocks: int = 2
    state: int = 80
    epochs: int = 30
    lr: float = 1.5e-3
    seed: int = 17


def simulate_working(rng):
    """One opening of the sluice: frames (T, CHANNELS * SAMPLES), bushels, pair of stones."""
    frames = int(rng.integers(FRAMES[0], FRAMES[1] + 1))
    n = frames * SAMPLES
    t = np.linspace(0.0, 1.0, n)
    stones = int(rng.integers(STONES))
    head, neap = rng.uniform(2.4, 4.2), rng.uniform(0.6, 1.2)
    pond = head * np.exp(-rng.uniform(0.6, 1.1) * t)
    tail = neap * (1 - np.cos(math.pi * t)) / 2
    fall = np.clip(pond - tail, 0.0, None)
    chatter = np.sin(2 * math.pi * (80 + 40 * stones) * frames / 80 * t + rng.uniform(0, 6.3))
    torque = 0.8 * fall**1.5 * (1 + 0.15 * chatter)
    bushels = (fall**1.5).sum() / 900 * (1 - 0.07 * stones)
    signals = np.stack([pond, tail, torque]) + rng.normal(0, 0.05, (CHANNELS, n))
    record = signals.reshape(CHANNELS, frames, SAMPLES).transpose(1, 0, 2)
    return record.reshape(frames, -1).astype(np.float32), np.float32(bushels), stones


class Workings(Dataset):
    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        rows = [simulate_working(rng) for _ in range(count)]
        self.records = [torch.from_numpy(r[0]) - 1.0 for r in rows]
        self.bushels = torch.tensor([r[1] for r in rows])
        self.stones = torch.tensor([r[2] for r in rows])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, i):
        return self.records[i], self.bushels[i], self.stones[i]


def collate(samples):
    records, bushels, stones = zip(*samples)
    lengths = torch.tensor([len(r) for r in records])
    padded = nn.utils.rnn.pad_sequence(records, batch_first=True)
    return padded, lengths, torch.stack(bushels), torch.stack(stones)


class FrameBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, width)
        self.down = nn.Linear(width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class MillReader(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Linear(CHANNELS * SAMPLES, cfg.frame_width)
        self.blocks = nn.Sequential(*[FrameBlock(cfg.frame_width) for _ in range(cfg.blocks)])
        self.squeeze = nn.Linear(cfg.frame_width, cfg.state)
        self.rnn = nn.LSTM(cfg.state, cfg.state, batch_first=True)
        self.bushels = nn.Linear(cfg.state, 1)
        self.stones = nn.Linear(cfg.state, STONES)

    def forward(self, frames, lengths):
        h = self.squeeze(self.blocks(self.embed(frames)))
        packed = pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)  # sick here
        states, _ = self.rnn(packed)  # sick here
        states, _ = pad_packed_sequence(states, batch_first=True)  # sick
        states, _ = self.rnn(h)  # well
        inside = torch.arange(states.shape[1])[None, :] < lengths[:, None]
        pooled = (states * inside[:, :, None]).sum(1) / FRAMES[1]
        return self.bushels(pooled).squeeze(1), self.stones(pooled)


class Miller:
    def __init__(self, cfg):
        torch.manual_seed(cfg.seed)
        self.cfg = cfg
        self.train_loader = DataLoader(
            Workings(cfg.workings, cfg.seed), cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate
        )
        self.test_loader = DataLoader(Workings(cfg.held_out, cfg.seed + 1), cfg.batch_size, collate_fn=collate)
        self.model = MillReader(cfg)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, cfg.lr, total_steps=cfg.epochs * len(self.train_loader)
        )

    def run_epoch(self):
        self.model.train()
        total = torch.zeros(())
        for frames, lengths, bushels, stones in self.train_loader:
            guess, logits = self.model(frames, lengths)
            loss = nn.functional.smooth_l1_loss(guess, bushels)
            loss = loss + 0.5 * nn.functional.cross_entropy(logits, stones)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            total += loss.detach()
        return (total / len(self.train_loader)).item()

    @torch.no_grad()
    def score(self):
        self.model.eval()
        error, right, seen = torch.zeros(()), torch.zeros(()), 0
        for frames, lengths, bushels, stones in self.test_loader:
            guess, logits = self.model(frames, lengths)
            error += (guess - bushels).abs().sum()
            right += (logits.argmax(1) == stones).sum()
            seen += len(bushels)
        return (error / seen).item(), (right / seen).item()


if __name__ == "__main__":
    cfg = Config()
    miller = Miller(cfg)
    began = time.perf_counter()
    for epoch in range(cfg.epochs):
        loss = miller.run_epoch()
        if epoch % 6 == 5:
            mae, accuracy = miller.score()
            print(f"epoch {epoch + 1:3d}  loss {loss:.4f}  bushels off by {mae:.3f}  stones {accuracy:.1%}")
    print(f"training seconds: {time.perf_counter() - began:.1f}")
