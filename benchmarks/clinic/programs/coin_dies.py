# /// clinic
# expect = ["PD03.same-result"]
# stratum = "twins"
# domain = "coins: which die struck a coin, from photographs of a hoard"
# ///
# %% [markdown]
# Which die struck this coin?  Photographs of reverses from one hoard, 12 dies, lit from different sides.
# (exported from the notebook; the photographs are drawn below so that the script runs anywhere)

# %%
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset


SEED = 11
N_DIES = 12
N_COINS = 320
PHOTO = 512
SIZE = 96
BATCH = 32
EPOCHS = 22
LR = 3e-3
ROOT = Path(tempfile.mkdtemp(prefix="hoard_"))

torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

# %%
# one drawing for each die: border of dots, a few letters' strokes, a figure in the middle


def draw_die(k):
    die_rng = np.random.default_rng(1000 + k)
    img = Image.new("L", (PHOTO, PHOTO), 90)
    pen = ImageDraw.Draw(img)
    mid = PHOTO / 2
    pen.ellipse([20, 20, PHOTO - 20, PHOTO - 20], fill=140, outline=200, width=6)
    for a in np.linspace(0, 2 * np.pi, 36 + k, endpoint=False):
        x, y = mid + 0.43 * PHOTO * np.cos(a), mid + 0.43 * PHOTO * np.sin(a)
        pen.ellipse([x - 5, y - 5, x + 5, y + 5], fill=215)
    for a in np.linspace(0, 2 * np.pi, 11, endpoint=False):
        x, y = mid + 0.34 * PHOTO * np.cos(a), mid + 0.34 * PHOTO * np.sin(a)
        dx, dy = die_rng.normal(0, 16, 2)
        pen.line([x - dx, y - dy, x + dx, y + dy], fill=225, width=7)
    pen.polygon([tuple(p) for p in mid + die_rng.normal(0, 0.13 * PHOTO, (7, 2))], fill=190, outline=235)
    return np.asarray(img, dtype=np.float32)


def photograph(die):
    shift = rng.integers(-12, 13, 2)
    img = np.roll(die, tuple(shift), (0, 1))
    light = np.linspace(-35, 35, PHOTO, dtype=np.float32) * rng.choice([-1, 1])
    img = img + (light[None, :] if rng.random() < 0.5 else light[:, None])
    grain = rng.integers(-28, 29, (PHOTO // 2, PHOTO // 2)).astype(np.float32)
    img = img + grain.repeat(2, 0).repeat(2, 1)
    tone = np.array([1.0, 0.93, 0.78], dtype=np.float32) * rng.uniform(0.85, 1.1)
    return Image.fromarray((img[..., None] * tone).clip(0, 255).astype(np.uint8))


dies = [draw_die(k) for k in range(N_DIES)]
labels = [int(k) for k in rng.integers(0, N_DIES, N_COINS)]
for i, k in enumerate(labels):
    photograph(dies[k]).save(ROOT / f"coin_{i:04d}.jpg", quality=88)

# %%


class HoardPhotos(Dataset):
    """Photographs of coins, shrunk to SIZE x SIZE, with a random turn and shift in training."""

    def __init__(self, root, labels, indices, train):
        self.files = [root / f"coin_{i:04d}.jpg" for i in indices]
        self.labels = [labels[i] for i in indices]
        self.train = train
        self.small = [self.read(file) for file in self.files]  # well

    def __len__(self):
        return len(self.files)

    @staticmethod
    def read(file):
        img = Image.open(file).convert("RGB")  # here
        img = img.resize((SIZE + 8, SIZE + 8), Image.BICUBIC)  # here
        return torch.from_numpy(np.array(img)).permute(2, 0, 1).contiguous()

    def __getitem__(self, i):
        img = self.read(self.files[i])  # sick here
        img = self.small[i]  # well
        top, left = torch.randint(0, 9, (2,)).tolist() if self.train else (4, 4)
        img = img[:, top : top + SIZE, left : left + SIZE]
        if self.train:
            img = torch.rot90(img, int(torch.randint(4, ())), (1, 2))
        return img.float().div_(127.5).sub_(1), self.labels[i]


order = rng.permutation(N_COINS)
train_set = HoardPhotos(ROOT, labels, order[:256], train=True)
test_set = HoardPhotos(ROOT, labels, order[256:], train=False)
train_loader = DataLoader(train_set, BATCH, shuffle=True, drop_last=True)
test_loader = DataLoader(test_set, BATCH)

# %%


def conv(cin, cout, stride):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


model = nn.Sequential(
    conv(3, 24, 2),
    conv(24, 48, 1),
    conv(48, 64, 2),
    conv(64, 96, 2),
    conv(96, 128, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Dropout(0.1),
    nn.Linear(128, N_DIES),
)
opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.02)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, LR, total_steps=EPOCHS * len(train_loader))

# %%
start = time.perf_counter()
for epoch in range(EPOCHS):
    model.train()
    total = torch.zeros(())
    for img, die in train_loader:
        loss = F.cross_entropy(model(img), die, label_smoothing=0.05)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        total += loss.detach()
    print(
        f"epoch {epoch:2d}  loss {total.item() / len(train_loader):.3f}  {time.perf_counter() - start:.1f} s",
        flush=True,
    )

model.eval()
with torch.no_grad():
    right = sum((model(img).argmax(1) == die).sum().item() for img, die in test_loader)
print(f"{right} of {len(test_set)} test coins given to the right die")
shutil.rmtree(ROOT)
