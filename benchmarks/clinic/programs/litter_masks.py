# /// clinic
# expect = ["PD03.part-made-again", "PD03.samples-made-again"]
# stratum = "twins"
# domain = "beach litter"
# ///
# %% [markdown]
# # Beach litter on drone photos
# U-Net for the transects of the spring survey. Classes: sand, plastic, rope/net, driftwood.
# Adapted from the toy shapes U-Net notebook, with our photos in place of the circles and squares.

# %%
import io
import logging
import tempfile
import time
import warnings
from pathlib import Path

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
L.seed_everything(3)

CLASSES = ["sand", "plastic", "rope", "driftwood"]
PHOTO = (640, 480)
SIDE = 64
FOLDER = Path(tempfile.mkdtemp(prefix="transects_"))


# %%
def draw_photo(rng):
    """A stretch of sand with some litter, and its annotation."""
    coarse = Image.fromarray(rng.integers(150, 215, (60, 80, 3), dtype=np.uint8))
    photo = coarse.resize(PHOTO, Image.BILINEAR)
    mask = Image.new("L", PHOTO, 0)
    ink, label = ImageDraw.Draw(photo), ImageDraw.Draw(mask)
    for _ in range(rng.integers(4, 10)):
        x, y = int(rng.integers(0, PHOTO[0] - 90)), int(rng.integers(0, PHOTO[1] - 90))
        w, h = (int(v) for v in rng.integers(25, 90, 2))
        kind = int(rng.integers(1, 4))
        if kind == 1:
            colour = tuple(int(v) for v in rng.integers(0, 255, 3))
            ink.ellipse((x, y, x + w, y + h), fill=colour)
            label.ellipse((x, y, x + w, y + h), fill=1)
        elif kind == 2:
            points = [(x, y), (x + w, y + h // 3), (x + w // 2, y + h), (x + w + 40, y + h + 20)]
            ink.line(points, fill=(30, 90, 160), width=9)
            label.line(points, fill=2, width=9)
        else:
            ink.rectangle((x, y, x + w, y + h // 3), fill=(110, 85, 60))
            label.rectangle((x, y, x + w, y + h // 3), fill=3)
    return photo, mask


def make_survey(folder, count):
    rng = np.random.default_rng(17)
    for i in range(count):
        photo, mask = draw_photo(rng)
        photo.save(folder / f"{i:04d}.jpg", quality=90)
        mask.save(folder / f"{i:04d}.png", compress_level=1)
    return sorted(folder.glob("*.jpg"))


# %%
class TransectDataset(Dataset):
    def __init__(self, paths, augment):
        self.paths = paths
        self.augment = augment
        self.items = [self.load(path) for path in paths]  # well

    def load(self, path):
        photo = Image.open(io.BytesIO(path.read_bytes())).convert("RGB").resize((SIDE, SIDE), Image.BICUBIC)
        mask = Image.open(path.with_suffix(".png")).resize((SIDE, SIDE), Image.NEAREST)
        image = torch.from_numpy(np.asarray(photo, dtype=np.float32) / 255).permute(2, 0, 1).contiguous()
        return image, torch.from_numpy(np.asarray(mask, dtype=np.int64))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        image, mask = self.load(self.paths[index])  # sick here
        image, mask = self.items[index]  # well
        if self.augment:
            if torch.rand(()) < 0.5:
                image, mask = image.flip(-1), mask.flip(-1)
            if torch.rand(()) < 0.5:
                image, mask = image.flip(-2), mask.flip(-2)
            image = (image * (0.8 + 0.4 * torch.rand(()))).clamp(0, 1)
        return (image - 0.6) / 0.25, mask


# %%
class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, classes, base):
        super().__init__()
        self.down1, self.down2 = DoubleConv(3, base), DoubleConv(base, base * 2)
        self.bottom = DoubleConv(base * 2, base * 4)
        self.up2 = nn.ConvTranspose2d(base * 4, base * 2, 2, stride=2)
        self.conv2 = DoubleConv(base * 4, base * 2)
        self.up1 = nn.ConvTranspose2d(base * 2, base, 2, stride=2)
        self.conv1 = DoubleConv(base * 2, base)
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.conv2(torch.cat([self.up2(c), b], dim=1))
        a = self.conv1(torch.cat([self.up1(b), a], dim=1))
        return self.head(a)


class LitterSegmenter(L.LightningModule):
    def __init__(self, base=8, lr=2e-3):
        super().__init__()
        self.net = UNet(len(CLASSES), base)
        self.lr = lr
        self.register_buffer("class_weight", torch.tensor([0.3, 1.0, 1.5, 1.0]))
        self.began = None

    def training_step(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()
        image, mask = batch
        return F.cross_entropy(self.net(image), mask, weight=self.class_weight)

    def validation_step(self, batch, batch_idx):
        image, mask = batch
        guess = self.net(image).argmax(1)
        litter = (mask > 0) | (guess > 0)
        self.log("val_litter_acc", (guess == mask)[litter].float().mean(), batch_size=len(image))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.lr)


# %%
paths = make_survey(FOLDER, 152)
train_set, val_set = TransectDataset(paths[:128], True), TransectDataset(paths[128:], False)
train_loader = DataLoader(train_set, batch_size=8, shuffle=True, drop_last=True)
val_loader = DataLoader(val_set, batch_size=8)
EPOCHS = 17

model = LitterSegmenter()
trainer = L.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    num_sanity_val_steps=0,
    check_val_every_n_epoch=2,
)
trainer.fit(model, train_loader, val_loader)
seconds = time.perf_counter() - model.began

# %%
print("litter accuracy", round(trainer.callback_metrics["val_litter_acc"].item(), 3))
rate = EPOCHS * len(train_loader) * 8 / seconds
print(f"{rate:.1f} photos/s")
