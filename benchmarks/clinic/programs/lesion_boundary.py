# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "medical imaging"
# ///
"""Segmentation of liver and lesions in CT-like volumes.

A small 3D U-Net with one sigmoid output for each structure is trained with
Dice plus a boundary term: the probability is weighted with the signed distance
to the annotated surface (Kervadec et al.), which helps with lesions of a few
voxels.
"""

import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import distance_transform_edt, gaussian_filter
from torch import nn
from torch.utils.data import DataLoader, Dataset


warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

SIZE = 40
CASES = 48
BATCH = 4
EPOCHS = 16


def signed_distance(mask):
    """Distance to the structure's surface in voxels, negative inside."""
    inside = mask.astype(bool)
    if not inside.any():
        return np.zeros(mask.shape, np.float32)
    outer = distance_transform_edt(~inside)
    inner = distance_transform_edt(inside)
    return (outer * ~inside - (inner - 1) * inside).astype(np.float32)


def signed_distances(masks):
    return np.stack([signed_distance(mask) for mask in masks])


def make_case(rng):
    grid = np.stack(np.meshgrid(*[np.arange(SIZE)] * 3, indexing="ij")).astype(np.float32)
    middle = rng.uniform(SIZE / 2 - 4, SIZE / 2 + 4, (3, 1, 1, 1))
    liver = (((grid - middle) / rng.uniform(9, 14, (3, 1, 1, 1))) ** 2).sum(0) < 1
    lesion = np.zeros_like(liver)
    for _ in range(rng.integers(1, 4)):
        centre = middle + rng.uniform(-6, 6, (3, 1, 1, 1))
        radii = rng.uniform(2, 5, (3, 1, 1, 1))
        lesion |= (((grid - centre) / radii) ** 2).sum(0) < 1
    lesion &= liver
    tissue = gaussian_filter(rng.normal(size=liver.shape), 2) * 3
    volume = tissue + liver * rng.uniform(0.8, 1.2) - lesion * rng.uniform(1.5, 2)
    volume += rng.normal(0, 0.2, volume.shape)
    return volume.astype(np.float32), np.stack([liver, lesion]).astype(np.float32)


class LesionDataset(Dataset):
    def __init__(self, cases, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(cases):
            volume, masks = make_case(rng)
            item = {"image": torch.from_numpy(volume)[None], "mask": torch.from_numpy(masks)}
            item["distance"] = torch.from_numpy(signed_distances(masks))  # well
            self.items.append(item)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Block(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv3d(inputs, outputs, 3, padding=1),
            nn.InstanceNorm3d(outputs, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        )


class UNet3D(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.enc1 = Block(1, width)
        self.enc2 = nn.Sequential(Block(width, width * 2), Block(width * 2, width * 2))
        self.enc3 = nn.Sequential(Block(width * 2, width * 4), Block(width * 4, width * 4))
        self.up2 = nn.ConvTranspose3d(width * 4, width * 2, 2, stride=2)
        self.dec2 = Block(width * 4, width * 2)
        self.up1 = nn.ConvTranspose3d(width * 2, width, 2, stride=2)
        self.out = nn.Conv3d(width * 2, 2, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool3d(a, 2))
        c = self.enc3(F.max_pool3d(b, 2))
        b = self.dec2(torch.cat([self.up2(c), b], 1))
        return self.out(torch.cat([self.up1(b), a], 1))


class BoundaryLoss(nn.Module):
    def forward(self, probability, batch):
        maps = [signed_distances(masks) for masks in batch["mask"].cpu().numpy()]  # sick here
        distance = torch.from_numpy(np.stack(maps))  # sick
        distance = batch["distance"]  # well
        return (probability * distance.to(probability.device)).mean()


def dice_loss(probability, mask):
    overlap = (probability * mask).sum((2, 3, 4))
    total = probability.sum((2, 3, 4)) + mask.sum((2, 3, 4))
    return (1 - (2 * overlap + 1) / (total + 1)).mean()


class LesionModule(L.LightningModule):
    def __init__(self, boundary_weight=0.05):
        super().__init__()
        self.net = UNet3D()
        self.boundary = BoundaryLoss()
        self.boundary_weight = boundary_weight
        self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        probability = torch.sigmoid(self.net(batch["image"]))
        dice = dice_loss(probability, batch["mask"])
        loss = dice + self.boundary_weight * self.boundary(probability, batch)
        self.log("dice", dice.detach(), on_step=False, on_epoch=True, batch_size=BATCH)
        return loss

    def on_train_epoch_end(self):
        dice = self.trainer.callback_metrics["dice"]
        spent = time.perf_counter() - self.began
        print(f"epoch {self.current_epoch:2d}  dice loss {dice:.4f}  {spent:.1f} s", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3, fused=True)


def main():
    L.seed_everything(11)
    loader = DataLoader(LesionDataset(CASES, seed=5), batch_size=BATCH, shuffle=True)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(LesionModule(), loader)


if __name__ == "__main__":
    main()
