# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "millstone grit"
# ///
"""Thin sections of millstone grit: facies, mean grain size (phi) and sorting from a small vision transformer."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MulticlassAccuracy

FACIES = ("pebbly", "coarse", "medium", "fine", "silty")
SIGMA = (4.0, 2.8, 1.9, 1.2, 0.7)


def cut_sections(count, side, seed):
    """Quartz, feldspar and cement as thresholded random fields, lit through crossed polars."""
    rng = np.random.default_rng(seed)
    facies = rng.integers(0, len(FACIES), count)
    spread = rng.uniform(0.0, 0.5, count).astype(np.float32)
    images = np.empty((count, 3, side, side), dtype=np.float32)
    for kind, sigma in enumerate(SIGMA):
        rows = np.flatnonzero(facies == kind)
        grains = gaussian_filter(rng.standard_normal((len(rows), side, side), dtype=np.float32), (0, sigma, sigma))
        small = gaussian_filter(
            rng.standard_normal((len(rows), side, side), dtype=np.float32), (0, sigma / 2, sigma / 2)
        )
        weight = spread[rows, None, None]
        field = (1 - weight) * grains / grains.std() + weight * small / small.std()
        quartz, feldspar = field > 0.1, field < -0.7
        tint = rng.uniform(0.7, 1.1, (len(rows), 3, 1, 1)).astype(np.float32)
        grey = 0.25 + 0.5 * quartz + 0.15 * feldspar * np.cos(6 * field)
        images[rows] = grey[:, None] * tint
    images += 0.05 * rng.standard_normal(images.shape, dtype=np.float32)
    phi = np.log2(np.asarray(SIGMA, dtype=np.float32))[facies] + 0.1 * rng.standard_normal(count).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(facies), torch.from_numpy(np.stack([phi, spread], axis=1))


class Sections(Dataset):
    def __init__(self, count, side, seed):
        self.images, self.facies, self.size = cut_sections(count, side, seed)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.facies[index], self.size[index]


def patchify(images, n_patches):
    b, c, h, w = images.shape
    size = h // n_patches
    patches = torch.zeros(b, n_patches**2, c * size * size)  # sick
    for index, image in enumerate(images):  # sick here
        for i in range(n_patches):  # sick here
            for j in range(n_patches):  # sick here
                patch = image[:, i * size : (i + 1) * size, j * size : (j + 1) * size]  # sick
                patches[index, i * n_patches + j] = patch.flatten()  # sick
    patches = images.reshape(b, c, n_patches, size, n_patches, size)  # well
    patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(b, n_patches**2, c * size * size)  # well
    return patches


def positions(length, width):
    table = torch.zeros(length, width)
    where = torch.arange(length).unsqueeze(1)
    rate = torch.exp(-torch.arange(0, width, 2) / width * np.log(10000.0))
    table[:, 0::2] = torch.sin(where * rate)
    table[:, 1::2] = torch.cos(where * rate)
    return table


class Block(nn.Module):
    def __init__(self, width, heads, mlp_ratio=2):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, mlp_ratio * width), nn.GELU(), nn.Linear(mlp_ratio * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class GritViT(L.LightningModule):
    def __init__(self, side=64, n_patches=8, width=64, heads=4, depth=2, lr=1e-3, size_weight=0.5):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Linear(3 * (side // n_patches) ** 2, width)
        self.summary = nn.Parameter(torch.rand(1, 1, width))
        self.register_buffer("positions", positions(n_patches**2 + 1, width), persistent=False)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.facies, self.size = nn.Linear(width, len(FACIES)), nn.Linear(width, 2)
        self.accuracy = MulticlassAccuracy(len(FACIES))

    def forward(self, images):
        tokens = self.embed(patchify(images, self.hparams.n_patches))
        tokens = torch.cat([self.summary.expand(len(tokens), -1, -1), tokens], dim=1) + self.positions
        first = self.norm(self.blocks(tokens)[:, 0])
        return self.facies(first), self.size(first)

    def losses(self, batch):
        images, facies, size = batch
        logits, guess = self(images)
        return logits, F.cross_entropy(logits, facies) + self.hparams.size_weight * F.mse_loss(guess, size)

    def training_step(self, batch, _):
        if torch.rand(()) < 0.5:
            batch = [batch[0].flip(-1), *batch[1:]]
        _, loss = self.losses(batch)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        logits, loss = self.losses(batch)
        self.accuracy(logits, batch[1])
        self.log_dict({"val_loss": loss, "val_accuracy": self.accuracy}, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.02)
        total = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, self.hparams.lr, total_steps=total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Pace(L.Callback):
    seen, began, ended = 0, None, None

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[0])

    def on_train_epoch_end(self, trainer, module):
        self.ended = time.perf_counter()
        got = {name: round(value.item(), 3) for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {got}")


if __name__ == "__main__":
    L.seed_everything(21)
    train, val = Sections(1920, 64, seed=1), Sections(288, 64, seed=2)
    pace = Pace()
    trainer = L.Trainer(
        max_epochs=9,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        callbacks=[pace],
    )
    trainer.fit(
        GritViT(),
        DataLoader(train, batch_size=48, shuffle=True, drop_last=True),
        DataLoader(val, batch_size=48),
    )
    print(f"{pace.seen / (pace.ended - pace.began):.1f} sections/s")
