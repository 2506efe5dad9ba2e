# /// clinic
# expect = ["PD03.part-made-again", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "salt pans"
# ///
"""Brine density and crust stage of salt pans from aerial photographs, trained with progressive resizing."""

import io
import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image
from torch.utils.data import DataLoader, Dataset

STAGES = ["intake", "evaporator", "pickle", "crystalliser"]
BRINE = np.array([[52, 94, 110], [88, 128, 96], [176, 98, 92], [226, 190, 186]], dtype=np.float32)
MEAN = torch.tensor([0.50, 0.47, 0.45]).view(3, 1, 1)
STD = torch.tensor([0.22, 0.17, 0.17]).view(3, 1, 1)


@dataclass
class Phase:
    size: int
    epochs: int
    lr: float


@dataclass
class Config:
    train_photos: int = 480
    val_photos: int = 96
    photo: int = 320
    batch: int = 24
    seed: int = 11
    phases: list = field(
        default_factory=lambda: [Phase(32, 6, 2e-3), Phase(48, 5, 1e-3), Phase(64, 5, 5e-4)],
    )


def photograph(rng, side):
    """One pan from the air: brine colour, dikes, patches of crust; returned as the JPEG the drone stores."""
    stage = int(rng.integers(4))
    density = 1.03 + 0.05 * stage + 0.03 * rng.random()
    coarse = rng.normal(0, 18, (12, 12, 3)).astype(np.float32)
    patches = np.kron(coarse, np.ones((side // 12 + 1, side // 12 + 1, 1), dtype=np.float32))[:side, :side]
    img = BRINE[stage] + patches
    crust = rng.random((side // 4, side // 4)) < (density - 1.0) * 1.5
    img += 45 * np.kron(crust, np.ones((4, 4)))[:side, :side, None].astype(np.float32)
    for _ in range(3):
        at = int(rng.integers(side - 8))
        if rng.random() < 0.5:
            img[at : at + 6] = (120, 104, 84)
        else:
            img[:, at : at + 6] = (120, 104, 84)
    out = io.BytesIO()
    Image.fromarray(img.clip(0, 255).astype(np.uint8)).save(out, format="JPEG", quality=90)
    return out.getvalue(), stage, density


def survey(n, side, seed):
    rng = np.random.default_rng(seed)
    photos, stages, densities = zip(*(photograph(rng, side) for _ in range(n)))
    return list(photos), torch.tensor(stages), torch.tensor(densities, dtype=torch.float32)


def develop(photo, size):
    img = Image.open(io.BytesIO(photo)).convert("RGB").resize((size, size), Image.BILINEAR)
    return torch.from_numpy(np.array(img)).permute(2, 0, 1).float().div(255)


class PanPhotos(Dataset):
    def __init__(self, photos, stages, densities, size, augment):
        self.photos = photos  # sick
        self.photos = [develop(p, size) for p in photos]  # well
        self.stages = stages
        self.densities = densities
        self.size = size
        self.augment = augment

    def __len__(self):
        return len(self.photos)

    def __getitem__(self, i):
        x = develop(self.photos[i], self.size)  # sick here
        x = self.photos[i]  # well
        if self.augment:
            if torch.rand(()) < 0.5:
                x = x.flip(-1)
            if torch.rand(()) < 0.5:
                x = x.flip(-2)
            x = (x * (0.85 + 0.3 * torch.rand(()))).clamp(0, 1)
        return (x - MEAN) / STD, self.stages[i], self.densities[i]


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, 1, 1, bias=False),
            nn.BatchNorm2d(cout),
        )
        self.skip = nn.Identity() if cin == cout and stride == 1 else nn.Conv2d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class PanNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.trunk = nn.Sequential(
            Residual(width, width, 1),
            Residual(width, 2 * width, 2),
            Residual(2 * width, 2 * width, 1),
            Residual(2 * width, 4 * width, 2),
        )
        self.stage = nn.Linear(4 * width, len(STAGES))
        self.density = nn.Linear(4 * width, 1)

    def forward(self, x):
        h = self.trunk(self.stem(x)).mean((2, 3))
        return self.stage(h), 1.1 + 0.1 * self.density(h).squeeze(-1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    right, error, n = 0, 0.0, 0
    for x, stage, density in loader:
        logits, rho = model(x)
        right += (logits.argmax(1) == stage).sum().item()
        error += (rho - density).abs().sum().item()
        n += len(x)
    model.train()
    return right / n, error / n


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    train = survey(cfg.train_photos, cfg.photo, cfg.seed)
    val = survey(cfg.val_photos, cfg.photo, cfg.seed + 1)
    model = PanNet()
    seen = 0
    began = time.perf_counter()
    for phase in cfg.phases:
        loader = DataLoader(PanPhotos(*train, phase.size, True), cfg.batch, shuffle=True, drop_last=True)
        val_loader = DataLoader(PanPhotos(*val, phase.size, False), 2 * cfg.batch)
        optimizer = torch.optim.AdamW(model.parameters(), lr=phase.lr, weight_decay=0.02)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * phase.lr, total_steps=phase.epochs * len(loader))
        for epoch in range(phase.epochs):
            total = 0.0
            for x, stage, density in loader:
                logits, rho = model(x)
                loss = F.cross_entropy(logits, stage) + 50 * F.smooth_l1_loss(rho, density, beta=0.02)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.item()
                seen += len(x)
            accuracy, error = validate(model, val_loader)
            print(f"{phase.size:3d} px epoch {epoch}: {total / len(loader):.3f} acc {accuracy:.3f} density {error:.4f}")
    torch.save(model.state_dict(), "pannet.pt")
    rate = seen / (time.perf_counter() - began)
    print(f"{rate:.1f} photos/s")


if __name__ == "__main__":
    main()
