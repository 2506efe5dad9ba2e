# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "medical imaging: multi-coil MRI reconstruction (Lightning)"
# ///
"""Reconstruct undersampled multi-coil MRI slices with an unrolled network (Lightning)."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


SIZE, COILS = 96, 12


def coil_maps(size, coils):
    """Smooth complex sensitivities of coils placed round the head, normalised to unit sum of squares."""
    rows, cols = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    maps = []
    for angle in np.linspace(0, 2 * np.pi, coils, endpoint=False):
        x, y = 1.2 * np.cos(angle), 1.2 * np.sin(angle)
        maps.append(np.exp(-((cols - x) ** 2 + (rows - y) ** 2) / 1.1) * np.exp(1j * (angle + rows * x - cols * y)))
    maps = np.stack(maps)
    return maps / np.sqrt((np.abs(maps) ** 2).sum(0, keepdims=True))


def cartesian_mask(size, keep=0.3, centre=10, seed=3):
    lines = np.random.default_rng(seed).random(size) < keep
    lines[size // 2 - centre // 2 : size // 2 + centre // 2] = True
    return np.fft.ifftshift(lines).astype(np.float32)[None, :].repeat(size, axis=0)


def phantoms(count, size, seed):
    """Slices of random ellipses with a slowly varying phase."""
    rng = np.random.default_rng(seed)
    rows, cols = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    slices = np.zeros((count, size, size), dtype=np.complex64)
    for image in slices:
        for _ in range(7):
            x, y = rng.uniform(-0.5, 0.5, 2)
            a, b = rng.uniform(0.08, 0.45, 2)
            image[((cols - x) / a) ** 2 + ((rows - y) / b) ** 2 < 1] += rng.uniform(0.1, 0.5)
        image *= np.exp(1j * rng.uniform(-1, 1) * cols)
    return slices


def scan(slices, maps, mask, seed, noise=0.01):
    rng = np.random.default_rng(seed)
    kspace = np.fft.fft2(slices[:, None] * maps, norm="ortho")
    kspace += noise * (rng.standard_normal(kspace.shape) + 1j * rng.standard_normal(kspace.shape))
    return (kspace * mask).astype(np.complex64)


class Regulariser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2, 3, padding=1),
        )

    def forward(self, planes):
        return self.net(planes)


class UnrolledRecon(L.LightningModule):
    def __init__(self, maps, mask, cascades=5, width=8, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.register_buffer("maps", torch.from_numpy(maps))  # sick here
        self.register_buffer("maps", torch.from_numpy(maps).to(torch.complex64))  # well
        self.register_buffer("mask", torch.from_numpy(mask))
        self.regularisers = nn.ModuleList(Regulariser(width) for _ in range(cascades))
        self.steps = nn.Parameter(torch.full((cascades,), 0.5))

    def expand(self, planes):
        image = torch.view_as_complex(planes.permute(0, 2, 3, 1).contiguous())
        coil_images = image[:, None] * self.maps  # here
        return torch.fft.fft2(coil_images, norm="ortho") * self.mask

    def reduce(self, kspace):
        coil_images = torch.fft.ifft2(kspace, norm="ortho")
        image = (coil_images * self.maps.conj()).sum(1)  # here
        return torch.view_as_real(image).permute(0, 3, 1, 2).float()  # here

    def forward(self, kspace):
        planes = self.reduce(kspace)
        for step, regulariser in zip(self.steps, self.regularisers):
            fidelity = self.reduce(self.expand(planes) - kspace)
            planes = planes - step * fidelity - regulariser(planes)
        return planes

    def training_step(self, batch, batch_idx):
        kspace, truth = batch
        loss = F.l1_loss(self(kspace), truth)
        self.log("train_l1", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        kspace, truth = batch
        error = F.mse_loss(self(kspace), truth)
        self.log("val_psnr", 10 * torch.log10(truth.abs().max() ** 2 / error))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


class Report(L.Callback):
    def on_train_epoch_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        got = {name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {got} in {time.perf_counter() - self.start:.1f} s", flush=True)


def make_set(count, maps, mask, seed):
    slices = phantoms(count, SIZE, seed)
    truth = torch.view_as_real(torch.from_numpy(slices)).permute(0, 3, 1, 2).contiguous()
    return TensorDataset(torch.from_numpy(scan(slices, maps, mask, seed + 100)), truth)


def main():
    L.seed_everything(5)
    maps, mask = coil_maps(SIZE, COILS), cartesian_mask(SIZE)
    train = DataLoader(make_set(120, maps, mask, seed=1), batch_size=4, shuffle=True)
    val = DataLoader(make_set(12, maps, mask, seed=2), batch_size=4)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=14,
        callbacks=[Report()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(UnrolledRecon(maps, mask), train, val)


if __name__ == "__main__":
    main()
