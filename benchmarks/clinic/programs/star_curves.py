# /// clinic
# expect = ["PD10.complex-transform"]
# stratum = "twins"
# domain = "star catalogues"
# ///
"""Variability classes for a star catalogue: long convolutions over light curves.

Every entry has a curve of brightness and of its error on a regular grid; blocks mix time with learned damped
oscillations (as long as the curve itself, applied in Fourier space) and channels with a small MLP.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

CLASSES = ("eclipsing", "cepheid", "rr lyrae", "long period", "flaring", "constant")


@dataclass
class Options:
    entries: int = 1280
    held_out: int = 256
    nights: int = 768
    batch_size: int = 16
    width: int = 32
    modes: int = 6
    blocks: int = 3
    epochs: int = 5
    lr: float = 3e-3
    warmup: int = 30


def make_catalogue(count, nights, generator):
    """Curves by class: dips, saw teeth, fast saw teeth, slow waves, flares, nothing; gaps where it was cloudy."""

    def rand(*size):
        return torch.rand(*size, generator=generator)

    kind = torch.randint(len(CLASSES), (count,), generator=generator)
    night = torch.arange(nights)[None]
    period = torch.tensor([40.0, 90.0, 14.0, 420.0, 60.0, 50.0])[kind][:, None] * (0.7 + 0.6 * rand(count, 1))
    phase = (night / period + rand(count, 1)) % 1
    dips = -torch.exp(-(((phase - 0.3) / 0.04) ** 2)) - 0.5 * torch.exp(-(((phase - 0.8) / 0.04) ** 2))
    teeth = torch.where(phase < 0.2, phase / 0.2, (1 - phase) / 0.8) - 0.5
    waves = 0.6 * torch.sin(2 * math.pi * phase) + 0.2 * torch.sin(4 * math.pi * phase + 1)
    flares = torch.where(rand(count, nights) < 0.01, 2 * rand(count, nights), torch.zeros(()))
    shapes = torch.stack([dips, teeth, 0.8 * teeth, waves, flares, torch.zeros(count, nights)])
    curve = shapes[kind, torch.arange(count)] * (0.4 + rand(count, 1))
    error = 0.05 + 0.3 * rand(count, 1).expand(-1, nights)
    curve = curve + error * torch.randn(count, nights, generator=generator)
    cloudy = rand(count, nights) < 0.15
    curve[cloudy] = 0.0
    return torch.stack([curve, error, cloudy.float()], -1), kind


class LongConvolution(nn.Module):
    """Causal convolution with a sum of damped oscillations for each channel."""

    def __init__(self, width, modes):
        super().__init__()
        self.damping = nn.Parameter(torch.rand(width, modes) * 3 - 5)
        self.pitch = nn.Parameter(torch.rand(width, modes) * 4 - 4)
        self.weight = nn.Parameter(torch.randn(width, modes) / modes)
        self.skip = nn.Parameter(torch.ones(width))

    def response(self, length):
        t = torch.arange(length, device=self.weight.device, dtype=torch.float32)
        envelope = torch.exp(-self.damping.exp()[..., None] * t)
        wave = torch.cos(self.pitch.exp()[..., None] * t)
        return torch.einsum("wm,wmt->wt", self.weight, envelope * wave)

    def forward(self, x):
        x = x.transpose(1, 2)
        length = x.shape[-1]
        size = 2 * length
        spectrum = torch.fft.fft(x.to(torch.complex64), n=size)  # sick here
        transfer = torch.fft.fft(self.response(length).to(torch.complex64), n=size)  # sick here
        mixed = torch.fft.ifft(spectrum * transfer, n=size).real[..., :length]  # sick here
        spectrum = torch.fft.rfft(x, n=size)  # well
        transfer = torch.fft.rfft(self.response(length), n=size)  # well
        mixed = torch.fft.irfft(spectrum * transfer, n=size)[..., :length]  # well
        return (mixed + self.skip[:, None] * x).transpose(1, 2)


class Block(nn.Module):
    def __init__(self, width, modes):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.over_time = LongConvolution(width, modes)
        self.over_channels = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return x + self.over_channels(self.over_time(self.norm(x)))


class CurveClassifier(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.inlet = nn.Linear(3, options.width)
        self.blocks = nn.Sequential(*(Block(options.width, options.modes) for _ in range(options.blocks)))
        self.outlet = nn.Sequential(nn.LayerNorm(options.width), nn.Linear(options.width, len(CLASSES)))

    def forward(self, curves):
        return self.outlet(self.blocks(self.inlet(curves)).mean(1))


def evaluate(accelerator, model, loader):
    model.eval()
    right = count = 0
    with torch.no_grad():
        for curves, kind in loader:
            found, kind = accelerator.gather_for_metrics((model(curves).argmax(-1), kind))
            right += (found == kind).sum().item()
            count += len(kind)
    model.train()
    return right / count


def main(options=Options()):
    accelerator = Accelerator(cpu=True)
    set_seed(21)
    generator = torch.Generator().manual_seed(99)
    train = TensorDataset(*make_catalogue(options.entries, options.nights, generator))
    held = TensorDataset(*make_catalogue(options.held_out, options.nights, generator))
    train_loader = DataLoader(train, batch_size=options.batch_size, shuffle=True, drop_last=True)
    held_loader = DataLoader(held, batch_size=4 * options.batch_size)

    model = CurveClassifier(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    total = options.epochs * len(train_loader)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(step / options.warmup, 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))) + 0.01),
    )
    model, optimizer, train_loader, held_loader = accelerator.prepare(model, optimizer, train_loader, held_loader)

    seen, began = 0, time.perf_counter()
    for epoch in range(options.epochs):
        losses = []
        for curves, kind in train_loader:
            loss = F.cross_entropy(model(curves), kind)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            seen += len(kind)
        score = evaluate(accelerator, model, held_loader)
        accelerator.print(f"epoch {epoch}: loss {torch.stack(losses).mean().item():.3f}, held out {score:.3f}")
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "star_curves.pt")
    rate = seen / (time.perf_counter() - began)
    accelerator.print(f"{rate:.1f} curves/s")


if __name__ == "__main__":
    main()
