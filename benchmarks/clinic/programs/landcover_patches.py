# /// clinic
# expect = ["PD03.same-result", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "remote sensing"
# ///
"""Land-cover mapping on multispectral scenes.

Trains a compact U-Net on random windows cut from a handful of simulated
six-band satellite scenes stored as .npz archives, the format in which the
preprocessing pipeline delivers them.
"""

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import zoom
from torch import nn
from torch.utils.data import DataLoader, Dataset


BANDS = 6
CLASSES = 5
SCENES = 8
SCENE_SIZE = 256
WINDOW = 64
BATCH = 8
STEPS = 320


def simulate_scene(rng):
    """Smooth reflectances whose mixture decides the land-cover class."""
    coarse = rng.random((CLASSES, SCENE_SIZE // 32, SCENE_SIZE // 32))
    score = np.stack([zoom(layer, 32, order=1) for layer in coarse])
    labels = score.argmax(0).astype(np.uint8)
    signatures = np.random.default_rng(7).uniform(500, 4000, (CLASSES, BANDS))
    bands = signatures[labels].transpose(2, 0, 1)
    bands = bands + rng.normal(0, 120, bands.shape)
    bands = np.clip(bands, 0, 10000) // 16 * 16
    return bands.astype(np.uint16), labels


def write_archive(folder, seed=0):
    rng = np.random.default_rng(seed)
    paths = []
    for i in range(SCENES):
        bands, labels = simulate_scene(rng)
        path = folder / f"scene_{i:03d}.npz"
        np.savez_compressed(path, bands=bands, labels=labels)
        paths.append(path)
    return paths


def read_scene(path):
    with np.load(path) as archive:
        return archive["bands"], archive["labels"]


class WindowDataset(Dataset):
    """Windows of WINDOW x WINDOW pixels at fixed random positions."""

    def __init__(self, paths, length, seed):
        rng = np.random.default_rng(seed)
        self.paths = paths
        self.scene = rng.integers(0, len(paths), length)
        self.corner = rng.integers(0, SCENE_SIZE - WINDOW, (length, 2))
        self.opened = {}

    def __len__(self):
        return len(self.scene)

    def __getitem__(self, index):
        scene = int(self.scene[index])
        bands, labels = read_scene(self.paths[scene])  # sick here
        if scene not in self.opened:  # well
            self.opened[scene] = read_scene(self.paths[scene])  # well
        bands, labels = self.opened[scene]  # well
        y, x = self.corner[index]
        window = bands[:, y : y + WINDOW, x : x + WINDOW].astype(np.float32)
        target = labels[y : y + WINDOW, x : x + WINDOW].astype(np.int64)
        return torch.from_numpy(window / 10000.0), torch.from_numpy(target)


def double_conv(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class SmallUNet(nn.Module):
    def __init__(self, bands, classes, width=16):
        super().__init__()
        self.enc1 = double_conv(bands, width)
        self.enc2 = double_conv(width, width * 2)
        self.enc3 = double_conv(width * 2, width * 4)
        self.up2 = nn.ConvTranspose2d(width * 4, width * 2, 2, stride=2)
        self.dec2 = double_conv(width * 4, width * 2)
        self.up1 = nn.ConvTranspose2d(width * 2, width, 2, stride=2)
        self.dec1 = double_conv(width * 2, width)
        self.classify = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.enc3(F.max_pool2d(b, 2))
        b = self.dec2(torch.cat([self.up2(c), b], 1))
        a = self.dec1(torch.cat([self.up1(b), a], 1))
        return self.classify(a)


def train_step(model, optimizer, images, targets):
    optimizer.zero_grad(set_to_none=True)
    logits = model(images)
    loss = F.cross_entropy(logits, targets)
    loss.backward()
    optimizer.step()
    return loss.detach(), (logits.detach().argmax(1) == targets).float().mean()


def main():
    torch.manual_seed(0)
    folder = Path(tempfile.mkdtemp(prefix="scenes_"))
    try:
        paths = write_archive(folder)
        dataset = WindowDataset(paths, STEPS * BATCH, seed=1)
        loader = DataLoader(dataset, batch_size=BATCH, shuffle=True)
        model = SmallUNet(BANDS, CLASSES)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)

        model.train()
        start = time.perf_counter()
        for step, (images, targets) in enumerate(loader, 1):
            loss, accuracy = train_step(model, optimizer, images, targets)
            schedule.step()
            if step % 50 == 0:
                pace = (time.perf_counter() - start) / step
                print(
                    f"step {step:4d}  loss {loss:.4f}  pixel acc {accuracy:.3f}  {pace * 1e3:.0f} ms/step", flush=True
                )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
