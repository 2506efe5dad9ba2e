# /// clinic
# expect = ["PD16.tested-tensors", "PD10.scalar-reads"]
# stratum = "twins"
# domain = "medical signals"
# ///
"""Sorts ten-second stretches of a two-lead ECG into five kinds of rhythm with a residual convolutional network."""

import logging
import math
import os
import tempfile
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

log = logging.getLogger("ecg")


@dataclass
class Config:
    records: int = 1920
    val_records: int = 320
    length: int = 1000
    leads: int = 2
    kinds: int = 5
    width: int = 24
    stages: int = 3
    batch_size: int = 48
    epochs: int = 4
    lr: float = 3e-3
    clip: float = 5.0
    seed: int = 23


def make_records(count, cfg, generator):
    """Trains of beats; the kind decides rate, regularity, the width of the QRS complex and the P wave."""
    label = torch.randint(0, cfg.kinds, (count,), generator=generator)
    rate = torch.tensor([1.1, 0.7, 1.9, 1.2, 1.6])[label].view(-1, 1)
    jitter = torch.tensor([0.02, 0.02, 0.02, 0.25, 0.03])[label].view(-1, 1)
    qrs = torch.tensor([0.02, 0.02, 0.02, 0.02, 0.06])[label].view(-1, 1)
    p_wave = torch.tensor([0.2, 0.2, 0.15, 0.0, 0.0])[label].view(-1, 1)
    seconds = torch.linspace(0, 10, cfg.length)
    wander = torch.rand(count, 1, generator=generator)
    phase = rate * seconds + wander
    phase = phase + jitter * torch.sin(2 * math.pi * (0.37 * phase + wander)) * torch.sin(1.3 * phase)
    beat = (phase % 1.0 - 0.5) / rate
    wave = torch.exp(-((beat / qrs) ** 2)) + p_wave * torch.exp(-(((beat + 0.16) / 0.04) ** 2))
    wave = wave + 0.3 * torch.exp(-(((beat - 0.2) / 0.06) ** 2))
    gains = 0.7 + 0.6 * torch.rand(count, cfg.leads, 1, generator=generator)
    signal = gains * wave.unsqueeze(1)
    return signal + 0.15 * torch.randn(count, cfg.leads, cfg.length, generator=generator), label


class Residual(nn.Module):
    def __init__(self, channels_in, channels):
        super().__init__()
        self.conv1 = nn.Conv1d(channels_in, channels, 5, stride=2, padding=2, bias=False)
        self.norm1 = nn.BatchNorm1d(channels)
        self.conv2 = nn.Conv1d(channels, channels, 5, padding=2, bias=False)
        self.norm2 = nn.BatchNorm1d(channels)
        self.short = nn.Conv1d(channels_in, channels, 1, stride=2)
        self.act1 = nn.ReLU()
        self.act2 = nn.ReLU()

    def forward(self, x):
        y = self.act1(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return self.act2(y + self.short(x))


def build_model(cfg):
    layers = [nn.Conv1d(cfg.leads, cfg.width, 9, padding=4), nn.BatchNorm1d(cfg.width), nn.ReLU()]
    channels = cfg.width
    for _ in range(cfg.stages):
        layers.append(Residual(channels, channels + 8))
        channels += 8
    layers += [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(channels, cfg.kinds)]
    return nn.Sequential(*layers)


class LayerWatch:
    """Looks at the output of every layer and names the first one that leaves the range of sane numbers."""

    def __init__(self, model, limit=1e4):
        self.limit = limit
        self.worst = {}
        for name, module in model.named_modules():
            if not any(module.children()):
                module.register_forward_hook(lambda mod, args, out, name=name: self.look(name, out))

    @torch.no_grad()
    def look(self, name, out):
        if not torch.isfinite(out).all():  # here
            raise FloatingPointError(f"{name} gave a number that is not finite")
        self.worst[name] = max(self.worst.get(name, 0.0), out.abs().max().item())
        if self.worst[name] > self.limit:
            log.warning("%s reached %.3g", name, self.worst[name])


class Trainer:
    def __init__(self, cfg, path):
        self.cfg = cfg
        self.path = path
        torch.manual_seed(cfg.seed)
        generator = torch.Generator().manual_seed(cfg.seed)
        self.signals, self.labels = make_records(cfg.records, cfg, generator)
        self.val_signals, self.val_labels = make_records(cfg.val_records, cfg, generator)
        self.model = build_model(cfg)
        LayerWatch(self.model)  # sick here
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr)
        self.epoch = 0
        if os.path.exists(path):
            self.resume()

    def resume(self):
        state = torch.load(self.path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch = state["epoch"]
        log.info("going on after epoch %d", self.epoch)

    def save(self):
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": self.epoch}
        torch.save(state, self.path)

    def run_epoch(self):
        self.model.train()
        losses = []
        for index in torch.randperm(self.cfg.records).split(self.cfg.batch_size):
            loss = F.cross_entropy(self.model(self.signals[index]), self.labels[index])
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
            self.optimizer.step()
            losses.append(loss.detach())
        return torch.stack(losses).mean().item(), len(losses) * self.cfg.batch_size

    @torch.inference_mode()
    def accuracy(self):
        self.model.eval()
        hits = 0
        for signals, labels in zip(self.val_signals.split(80), self.val_labels.split(80)):
            hits += (self.model(signals).argmax(dim=1) == labels).sum().item()
        return hits / self.cfg.val_records

    def fit(self):
        seen, begun = 0, time.perf_counter()
        while self.epoch < self.cfg.epochs:
            loss, count = self.run_epoch()
            seen += count
            self.epoch += 1
            log.info("epoch %d: loss %.3f, accuracy %.3f", self.epoch, loss, self.accuracy())
            self.save()
        return seen / (time.perf_counter() - begun)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        rate = Trainer(Config(), os.path.join(folder, "ecg.pt")).fit()
    print(f"{rate:.1f} samples/s")
