# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "gearbox vibration"
# ///
"""Denoising of gearbox vibration records with a dilated convolutional network and a multi-resolution spectral loss."""

import time

import torch
from scipy.signal import get_window
from torch import nn
from torch.utils.data import DataLoader, Dataset

RATE = 8000
LENGTH = 8192


class VibrationRecords(Dataset):
    """Shaft harmonics with tooth-mesh sidebands; the noisy version adds broadband noise and impacts."""

    def __init__(self, records, seed):
        g = torch.Generator().manual_seed(seed)
        t = torch.arange(LENGTH) / RATE
        clean = torch.zeros(records, LENGTH)
        shaft = 20 + 15 * torch.rand(records, 1, generator=g)
        for order in (1, 2, 23, 24, 25, 46, 69):
            amplitude = torch.rand(records, 1, generator=g) / (1 + 0.02 * order)
            phase = 6.283 * torch.rand(records, 1, generator=g)
            clean += amplitude * torch.sin(6.283 * shaft * order * t + phase)
        clean /= clean.std(dim=1, keepdim=True)
        impacts = (
            (torch.rand(records, LENGTH, generator=g) < 0.002).float() * 4 * torch.randn(records, LENGTH, generator=g)
        )
        self.clean = clean
        self.noisy = clean + 0.7 * torch.randn(records, LENGTH, generator=g) + impacts

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, record):
        return self.noisy[record], self.clean[record]


class ResolutionLoss(nn.Module):
    def __init__(self, size, hop, shape="hann"):
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.from_numpy(get_window(shape, size)))  # sick here
        self.register_buffer("window", torch.from_numpy(get_window(shape, size)).float())  # well

    def magnitude(self, signal):
        frames = signal.unfold(-1, self.size, self.hop) * self.window
        spectrum = torch.fft.rfft(frames)
        return torch.sqrt(spectrum.real**2 + spectrum.imag**2 + 1e-6)

    def forward(self, estimate, clean):
        a, b = self.magnitude(estimate), self.magnitude(clean)
        convergence = torch.linalg.vector_norm(b - a) / torch.linalg.vector_norm(b)
        return convergence + (a.log() - b.log()).abs().mean()


class SpectralLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.resolutions = nn.ModuleList([ResolutionLoss(256, 64), ResolutionLoss(512, 128), ResolutionLoss(1024, 256)])

    def forward(self, estimate, clean):
        spectral = sum(resolution(estimate, clean) for resolution in self.resolutions) / len(self.resolutions)
        return spectral + nn.functional.l1_loss(estimate, clean)


class DilatedBlock(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.filter = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.mix = nn.Conv1d(width, width, 1)
        self.scale = nn.Parameter(torch.full((width, 1), 0.1))

    def forward(self, x):
        return x + self.scale * self.mix(nn.functional.gelu(self.filter(x)))


class Denoiser(nn.Module):
    def __init__(self, width=24, depth=4):
        super().__init__()
        self.encode = nn.Conv1d(1, width, 16, stride=8, padding=4)
        self.blocks = nn.Sequential(*[DilatedBlock(width, 2**level) for level in range(depth)])
        self.decode = nn.ConvTranspose1d(width, 1, 16, stride=8, padding=4)
        self.bypass = nn.Parameter(torch.tensor(0.5))

    def forward(self, noisy):
        hidden = self.blocks(self.encode(noisy.unsqueeze(1)))
        return self.decode(hidden).squeeze(1) + self.bypass * noisy


@torch.no_grad()
def snr(model, loader):
    model.eval()
    gain = []
    for noisy, clean in loader:
        error = (model(noisy) - clean).square().sum(1)
        gain.append(10 * torch.log10(clean.square().sum(1) / error))
    model.train()
    return torch.cat(gain).mean().item()


def main():
    torch.manual_seed(2)
    train = DataLoader(VibrationRecords(960, seed=1), batch_size=8, shuffle=True, drop_last=True)
    held_out = DataLoader(VibrationRecords(32, seed=2), batch_size=8)
    model, criterion = Denoiser(), SpectralLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    epochs, step, since = 7, 0, None
    for epoch in range(epochs):
        running = 0.0
        for noisy, clean in train:
            loss = criterion(model(noisy), clean)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            running += loss.item()
            step += 1
            if step == 5:
                since = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] *= 0.8
        print(f"epoch {epoch}: loss {running / len(train):.3f}, snr {snr(model, held_out):.2f} dB", flush=True)
    print(f"{(step - 5) / (time.perf_counter() - since):.2f} steps/s")


if __name__ == "__main__":
    main()
