# /// clinic
# stratum = "decoys"
# domain = "medical segmentation"
# ///
"""Segment cells in microscope images with a small U-Net."""

import gc
import logging
import os
import tempfile
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 112
IMAGES = 80
BATCH = 2
ACCUMULATE = 4
EPOCHS = 4
STEPS = EPOCHS * IMAGES // BATCH

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def plates(seed=12):
    gen = torch.Generator().manual_seed(seed)
    axis = torch.linspace(0, 1, SIDE)
    yy, xx = axis[:, None], axis[None, :]
    images, masks = [], []
    for _ in range(IMAGES):
        mask = torch.zeros(SIDE, SIDE)
        for cy, cx, r in torch.rand(9, 3, generator=gen).tolist():
            mask[((yy - cy) ** 2 + (xx - cx) ** 2) < (0.03 + 0.07 * r) ** 2] = 1
        images.append(0.6 * mask + 0.3 * torch.randn(SIDE, SIDE, generator=gen))
        masks.append(mask)
    return TensorDataset(torch.stack(images)[:, None], torch.stack(masks)[:, None])


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(8, cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(8, cout),
        nn.ReLU(),
    )


class UNet(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.deep = double(1, 24), double(24, 48), double(48, 96)
        self.up2, self.up1 = double(96 + 48, 48), double(48 + 24, 24)
        self.out = nn.Conv2d(24, 1, 1)
        self.pool, self.grow = nn.MaxPool2d(2), nn.Upsample(scale_factor=2)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.deep(self.pool(b))
        b = self.up2(torch.cat([self.grow(c), b], dim=1))
        return self.out(self.up1(torch.cat([self.grow(b), a], dim=1)))

    def training_step(self, batch, batch_idx):
        image, mask = batch
        out = self(image)
        share = out.sigmoid()
        dice = 1 - (2 * (share * mask).sum() + 1) / (share.sum() + mask.sum() + 1)
        return nn.functional.binary_cross_entropy_with_logits(out, mask) + dice

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3, fused=True)


class Keeper(L.Callback):
    def __init__(self, folder):
        self.folder, self.seen = folder, 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += 1
        if self.seen == 20:
            self.start = time.perf_counter()
        elif self.seen == STEPS:
            self.rate = (STEPS - 20) / (time.perf_counter() - self.start)

    def on_train_epoch_end(self, trainer, module):
        torch.save(module.state_dict(), os.path.join(self.folder, "last.pt"))
        gc.collect()


def main():
    L.seed_everything(1, verbose=False)
    loader = DataLoader(plates(), batch_size=BATCH, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder)
        trainer = L.Trainer(
            accelerator="cpu",
            max_epochs=EPOCHS,
            accumulate_grad_batches=ACCUMULATE,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[keeper],
        )
        trainer.fit(UNet(), loader)
    print(f"{keeper.rate:.1f} steps/s")


if __name__ == "__main__":
    main()
