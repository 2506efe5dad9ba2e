# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "diffractive optical classifier (phase plates for terahertz light)"
# ///
"""Learns the phase plates of a diffractive optical classifier (coherent light, four printed layers, ten detectors).

Light carrying a glyph passes plate after plate; between them it travels through free space, which is computed with the
angular spectrum method. The glyph's class is the detector patch that receives the most light.
"""

import math
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


GRID = 128  # pixels along a side of a plate
PITCH = 0.4e-3  # metres per pixel
WAVELENGTH = 0.75e-3  # 0.4 THz
GAP = 30e-3  # between plates
PLATES = 4
CLASSES = 10
BATCH = 24
STEPS = 480


def make_glyphs(count: int, generator: torch.Generator):
    """Amplitude images of ten kinds: a few random strokes per kind, moved and dimmed at random."""
    kinds = (torch.rand(CLASSES, 1, 12, 12, generator=generator) > 0.6).float()
    kinds = F.interpolate(kinds, size=(GRID // 2, GRID // 2), mode="bilinear", align_corners=False)[:, 0]
    labels = torch.randint(CLASSES, (count,), generator=generator)
    shifts = torch.randint(-9, 10, (count, 2), generator=generator)
    images = torch.zeros(count, GRID, GRID)
    quarter = GRID // 4
    for i, (label, (dy, dx)) in enumerate(zip(labels.tolist(), shifts.tolist())):
        images[i, quarter + dy : quarter + dy + GRID // 2, quarter + dx : quarter + dx + GRID // 2] = kinds[label]
    images *= 0.7 + 0.3 * torch.rand(count, 1, 1, generator=generator)
    return images, labels


def transfer_function(distance: float) -> torch.Tensor:
    """Angular spectrum kernel of free space over `distance`; evanescent waves are dropped."""
    fx = np.fft.fftfreq(GRID, d=PITCH)
    squared = 1.0 / WAVELENGTH**2 - fx[:, None] ** 2 - fx[None, :] ** 2
    kz = 2 * math.pi * np.sqrt(np.maximum(squared, 0.0))
    kernel = np.where(squared > 0, np.exp(1j * kz * distance), 0.0)
    return torch.from_numpy(kernel)  # sick here
    return torch.from_numpy(kernel).to(torch.complex64)  # well


class FreeSpace(nn.Module):
    def __init__(self, distance: float):
        super().__init__()
        self.register_buffer("kernel", transfer_function(distance))  # here

    def forward(self, field):
        return torch.fft.ifft2(torch.fft.fft2(field) * self.kernel)  # here


class PhasePlate(nn.Module):
    def __init__(self):
        super().__init__()
        self.height = nn.Parameter(0.1 * torch.randn(GRID, GRID))

    def forward(self, field):
        phase = math.pi * torch.tanh(self.height)
        return field * torch.polar(torch.ones_like(phase), phase)


class Detectors(nn.Module):
    """Ten square patches on the image plane; their shares of the light are the logits."""

    def __init__(self):
        super().__init__()
        masks = torch.zeros(CLASSES, GRID, GRID)
        side = GRID // 8
        for k in range(CLASSES):
            row, column = divmod(k, 4)
            top, left = side + row * 2 * side + side // 2, side // 2 + column * 2 * side
            masks[k, top : top + side, left : left + side] = 1.0
        self.register_buffer("masks", masks.flatten(1).t().contiguous())

    def forward(self, field):
        intensity = (field.real.square() + field.imag.square()).flatten(1)
        power = intensity @ self.masks.to(intensity.dtype)
        return 12.0 * power / power.sum(dim=1, keepdim=True)


class OpticalStack(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [FreeSpace(GAP)]
        for _ in range(PLATES):
            layers += [PhasePlate(), FreeSpace(GAP)]
        self.layers = nn.Sequential(*layers)
        self.detectors = Detectors()

    def forward(self, amplitude):
        field = torch.complex(amplitude, torch.zeros_like(amplitude))
        return self.detectors(self.layers(field))


torch.manual_seed(3)
images, labels = make_glyphs(1200, torch.Generator().manual_seed(8))
model = OpticalStack()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-3)
print(f"{PLATES} plates of {GRID}x{GRID}, {sum(p.numel() for p in model.parameters())} heights to print")

correct, began = 0, time.perf_counter()
for step in range(1, STEPS + 1):
    chosen = torch.randint(len(images), (BATCH,))
    logits = model(images[chosen])
    loss = F.cross_entropy(logits, labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    correct += (logits.argmax(dim=1) == labels[chosen]).sum()
    if step % 40 == 0:
        print(
            f"step {step:4d} loss {loss.item():.4f} hits {int(correct) / (40 * BATCH):.3f} "
            f"after {time.perf_counter() - began:.1f} s",
            flush=True,
        )
        correct = 0
