# /// clinic
# expect = ["PD09"]
# endless = true
# beyond = true
# stratum = "twins"
# domain = "OCR, page layout segmentation"
# ///
"""Pixel labelling of scanned pages (text, heading, table, figure, margin) as the first stage of an OCR pipeline."""

import logging
import tempfile
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")

REGIONS = ["margin", "text", "heading", "table", "figure"]


class FakeScans(Dataset):
    """Grey pages of boxes with the texture of lines, cells or pictures."""

    def __init__(self, pages=96, height=256, width=192):
        g = torch.Generator().manual_seed(23)
        self.pages = torch.ones(pages, 1, height, width)
        self.regions = torch.zeros(pages, height, width, dtype=torch.long)
        for p in range(pages):
            top = 12
            while top < height - 40:
                kind = int(torch.randint(1, len(REGIONS), (), generator=g))
                tall = int(torch.randint(16, 56, (), generator=g))
                box = (p, slice(top, top + tall), slice(14, width - 14))
                self.regions[box] = kind
                self.pages[(p, 0, *box[1:])] = self.texture(kind, self.regions[box].shape, g)
                top += tall + 6
        self.pages += 0.05 * torch.randn(self.pages.shape, generator=g)

    @staticmethod
    def texture(kind, shape, g):
        rows = torch.arange(shape[0]).view(-1, 1).expand(shape)
        cols = torch.arange(shape[1]).view(1, -1).expand(shape)
        ink = torch.rand(shape, generator=g)
        if kind == 1:
            return 1 - ink * (rows % 6 < 3)
        if kind == 2:
            return 1 - ink * (rows % 14 < 9)
        if kind == 3:
            return 1.0 - ((rows % 10 == 0) | (cols % 24 == 0)).float()
        return ink * 0.6

    def __len__(self):
        return len(self.pages)

    def __getitem__(self, k):
        return self.pages[k], self.regions[k]


class Residual(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv2d(cin, cout, 3, stride, 1)
        self.b = nn.Conv2d(cout, cout, 3, 1, 1)
        self.skip = nn.Conv2d(cin, cout, 1, stride)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.relu(self.norm(self.b(F.relu(self.a(x)))) + self.skip(x))


def decoder(width, hidden, factor, classes):
    stages = [
        ("reduce", nn.Conv2d(width, hidden, 1)),
        ("act", nn.ReLU(inplace=True)),
    ]
    full = ("full", nn.Upsample(scale_factor=factor, mode="bilinear", align_corners=False))
    label = ("label", nn.Conv2d(hidden, classes, 1))
    stages += [full, label]  # sick here
    stages += [label, full]  # well
    net = nn.Sequential()
    for name, module in stages:
        net.add_module(name, module)
    return net


class LayoutNet(nn.Module):
    def __init__(self, classes, width=32):
        super().__init__()
        self.stem = nn.Conv2d(1, width, 7, 4, 3)
        self.body = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 2 * width, 1)
        )
        self.decode = decoder(2 * width, 24, 8, classes)

    def forward(self, pages):
        return self.decode(self.body(F.relu(self.stem(pages))))  # here


class LayoutTask(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.net = LayoutNet(len(REGIONS))
        self.register_buffer("weights", torch.tensor([0.4, 1.0, 1.4, 1.2, 1.0]))

    def training_step(self, batch, _):
        pages, regions = batch
        return F.cross_entropy(self.net(pages), regions, weight=self.weights)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.7)}


class Pace(L.Callback):
    def __init__(self, every=10):
        self.every, self.since = every, time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % self.every == 0:
            now = time.perf_counter()
            print(
                f"step {trainer.global_step}  loss {outputs['loss'].item():.4f}  {self.every / (now - self.since):.2f} steps/s",
                flush=True,
            )
            self.since = now


if __name__ == "__main__":
    L.seed_everything(2, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=2000,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=folder,
            callbacks=[Pace()],
        )
        trainer.fit(LayoutTask(), DataLoader(FakeScans(), batch_size=6, shuffle=True))
