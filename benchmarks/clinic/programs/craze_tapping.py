# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "porcelain cracks"
# ///
"""Tap tests on porcelain: from the ringing of a tapped vessel to the course of its hidden crack.

An encoder reads the spectrogram of the tap, an attentive decoder writes the crack as a chain of directions.
"""

import argparse
import logging
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

log = logging.getLogger("craze")

DIRECTIONS = 16
START, STOP = DIRECTIONS, DIRECTIONS + 1
TOKENS = DIRECTIONS + 2


def tap_vessels(count, frames, bands, steps, seed):
    """Makes crack chains and the spectrograms they would leave: each segment damps and shifts some modes."""
    rng = np.random.default_rng(seed)
    heading = rng.integers(0, DIRECTIONS, size=(count, 1))
    turns = rng.choice([-2, -1, 0, 1, 2], p=[0.08, 0.2, 0.44, 0.2, 0.08], size=(count, steps))
    chain = (heading + np.cumsum(turns, axis=1)) % DIRECTIONS
    lengths = rng.integers(steps // 2, steps, size=count)
    body_modes = rng.uniform(4, bands - 4, size=(count, 5))
    band = np.arange(bands)[None, None, :]
    when = np.arange(frames)[None, :, None]
    spectra = np.zeros((count, frames, bands), dtype=np.float32)
    for m in range(body_modes.shape[1]):
        decay = rng.uniform(0.01, 0.05, size=(count, 1, 1))
        spectra += np.exp(-decay * when) * np.exp(-((band - body_modes[:, m, None, None]) ** 2) / 4)
    for s in range(steps):
        active = (s < lengths)[:, None, None]
        mode = (chain[:, s] + 0.5)[:, None, None] * bands / DIRECTIONS
        onset = (s + 0.5) * frames / steps
        burst = np.exp(-((when - onset) ** 2) / 6) * np.exp(-((band - mode) ** 2) / 3)
        spectra += active * burst.astype(np.float32)
    spectra += 0.15 * rng.standard_normal(spectra.shape).astype(np.float32)
    target = np.where(np.arange(steps)[None] < lengths[:, None], chain, STOP)
    target[np.arange(steps)[None] > lengths[:, None]] = -100
    return TensorDataset(torch.from_numpy(np.log1p(spectra.clip(0))), torch.from_numpy(target))


class TapEncoder(nn.Module):
    def __init__(self, bands, width, memory):
        super().__init__()
        self.rise = nn.Conv1d(bands, width, 3, padding=1)
        self.mix = nn.Conv1d(width, width, 3, padding=1)
        self.widen = nn.Linear(width, memory)
        self.summary = nn.Linear(memory, width)

    def forward(self, spectra):
        x = F.relu(self.rise(spectra.transpose(1, 2)))
        x = x + F.relu(self.mix(x))
        memory = F.relu(self.widen(x.transpose(1, 2)))
        return memory, torch.tanh(self.summary(memory.mean(1)))


class AdditiveAttention(nn.Module):
    def __init__(self, memory_dim, query_dim, width):
        super().__init__()
        self.of_memory = nn.Sequential(nn.LayerNorm(memory_dim), nn.Linear(memory_dim, width))
        self.of_query = nn.Linear(query_dim, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, query, memory):  # sick
        keys = self.of_memory(memory)  # sick here
        energy = self.score(torch.tanh(keys + self.of_query(query).unsqueeze(1)))  # sick
        weights = energy.squeeze(-1).softmax(dim=-1)  # sick
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights  # sick

    def forward(self, query, memory, keys):  # well
        energy = self.score(torch.tanh(keys + self.of_query(query).unsqueeze(1)))  # well
        weights = energy.squeeze(-1).softmax(dim=-1)  # well
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1), weights  # well


class CrackDecoder(nn.Module):
    def __init__(self, memory_dim, hidden):
        super().__init__()
        self.embed = nn.Embedding(TOKENS, 32)
        self.attention = AdditiveAttention(memory_dim, hidden, hidden // 2)
        self.cell = nn.GRUCell(32 + memory_dim, hidden)
        self.head = nn.Linear(hidden + memory_dim, TOKENS)

    def forward(self, memory, state, target, forcing):
        token = torch.full((len(memory),), START)
        logits = []
        keys = self.attention.of_memory(memory)  # well
        for t in range(target.shape[1]):
            context, _ = self.attention(state, memory)  # sick here
            context, _ = self.attention(state, memory, keys)  # well
            state = self.cell(torch.cat([self.embed(token), context], dim=-1), state)
            step = self.head(torch.cat([state, context], dim=-1))
            logits.append(step)
            token = target[:, t].clamp(min=0) if random.random() < forcing else step.detach().argmax(dim=-1)
        return torch.stack(logits, dim=1)


class CrackReader(nn.Module):
    def __init__(self, bands, width, memory):
        super().__init__()
        self.encoder = TapEncoder(bands, width, memory)
        self.decoder = CrackDecoder(memory, width)

    def forward(self, spectra, target, forcing=1.0):
        memory, state = self.encoder(spectra)
        return self.decoder(memory, state, target, forcing)


def train_epoch(model, loader, optimizer, forcing):
    model.train()
    total = torch.zeros(())
    for spectra, target in loader:
        logits = model(spectra, target, forcing)
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        total += loss.detach()
    return total.item() / len(loader)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = count = 0
    for spectra, target in loader:
        guess = model(spectra, target, forcing=0.0).argmax(dim=-1)
        known = target != -100
        right += int(((guess == target) & known).sum())
        count += int(known.sum())
    return right / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--vessels", type=int, default=1024)
    parser.add_argument("--frames", type=int, default=96)
    parser.add_argument("--bands", type=int, default=40)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--memory", type=int, default=384)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    random.seed(args.seed)
    torch.manual_seed(args.seed)

    train_set = tap_vessels(args.vessels, args.frames, args.bands, args.steps, args.seed + 1)
    test_set = tap_vessels(args.vessels // 8, args.frames, args.bands, args.steps, args.seed + 2)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)
    model = CrackReader(args.bands, args.width, args.memory)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    began = time.perf_counter()
    for epoch in range(args.epochs):
        forcing = max(0.5, 1.0 - 0.1 * epoch)
        loss = train_epoch(model, train_loader, optimizer, forcing)
        log.info("epoch %d loss %.3f accuracy %.3f", epoch, loss, evaluate(model, test_loader))
    spent = time.perf_counter() - began
    rate = args.epochs * len(train_loader) * args.batch_size / spent
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
