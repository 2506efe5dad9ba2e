# /// clinic
# expect = ["PD09.oversized-layer"]
# stratum = "twins"
# domain = "mosaic tiles"
# ///
"""Which workshop laid this mosaic floor?  MobileNet (Howard et al. 2017) on crops of tile photographs."""

import time

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

WORKSHOPS = ["regulatum", "tessellatum", "vermiculatum", "sectile", "musivum", "palladianum"]


def lay_floor(workshop, size, rng):
    """A crop of floor: a joint pattern of the workshop, tile colours in a few tones, mortar between the tiles."""
    ys, xs = np.mgrid[0:size, 0:size].astype(np.float32)
    ys, xs = ys + rng.uniform(0, 16), xs + rng.uniform(0, 16)
    pitch = rng.uniform(5.0, 8.0)
    if workshop == 1:
        xs = xs + pitch / 2 * (np.floor(ys / pitch) % 2)
    elif workshop == 2:
        ys = ys + 4.0 * np.sin(xs / rng.uniform(6.0, 10.0))
    elif workshop == 3:
        ys, xs = (ys + xs) * 0.7071, (ys - xs) * 0.7071
    elif workshop == 4:
        cy, cx = rng.uniform(0, size, 2)
        ys, xs = np.hypot(ys - cy, xs - cx), 12 * np.arctan2(ys - cy, xs - cx)
    elif workshop == 5:
        ys, xs = ys + 2 * np.sin(xs / 5) + np.cos(xs / 3), xs + 2 * np.cos(ys / 4)
    row, column = np.floor(ys / pitch).astype(np.int64), np.floor(xs / pitch).astype(np.int64)
    joint = ((ys / pitch) % 1 < 0.16) | ((xs / pitch) % 1 < 0.16)
    tones = rng.uniform(-1, 1, (5, 3)).astype(np.float32)
    image = tones[(row * 7 + column * 13 + row * column) % 5]
    image[joint] = 0.8
    return image


def make_floors(count, size, seed):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, len(WORKSHOPS), count)
    images = np.stack([lay_floor(w, size, rng) for w in label])
    images += 0.25 * rng.standard_normal(images.shape, dtype=np.float32)
    images = torch.from_numpy(images.astype(np.float32)).permute(0, 3, 1, 2).contiguous()
    return TensorDataset(images, torch.from_numpy(label))


def conv_bn(cin, cout, kernel, stride=1, groups=1, activation=nn.ReLU):
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, padding=kernel // 2, bias=False),  # sick here
        nn.Conv2d(cin, cout, kernel, stride, padding=kernel // 2, groups=groups, bias=False),  # well
        nn.BatchNorm2d(cout),
        activation(inplace=True),
    )


class SeparableConv(nn.Module):
    """Depthwise 3x3, then pointwise 1x1."""

    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.depthwise = conv_bn(cin, cin, 3, stride, groups=cin)
        self.pointwise = conv_bn(cin, cout, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


class MobileNet(nn.Module):
    # output channels and stride of each separable convolution
    LAYOUT = ((48, 1), (64, 2), (64, 1), (96, 2), (96, 1), (128, 2))

    def __init__(self, classes, stem=24, dropout=0.1):
        super().__init__()
        self.stem = conv_bn(3, stem, 3, stride=2)
        layers, channels = [], stem
        for out, stride in self.LAYOUT:
            layers.append(SeparableConv(channels, out, stride))
            channels = out
        self.features = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, classes)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            nn.init.zeros_(module.bias)

    def forward(self, x):
        x = self.features(self.stem(x))
        return self.classifier(self.dropout(x.mean((2, 3))))


class FloorData(L.LightningDataModule):
    def __init__(self, size=64, train=1600, val=192, batch_size=32):
        super().__init__()
        self.save_hyperparameters()

    def setup(self, stage=None):
        self.train_set = make_floors(self.hparams.train, self.hparams.size, seed=1)
        self.val_set = make_floors(self.hparams.val, self.hparams.size, seed=2)

    def train_dataloader(self):
        return DataLoader(self.train_set, self.hparams.batch_size, shuffle=True, drop_last=True)

    def val_dataloader(self):
        return DataLoader(self.val_set, self.hparams.batch_size)


class FloorClassifier(L.LightningModule):
    def __init__(self, lr=0.05, weight_decay=4e-5, smoothing=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = MobileNet(len(WORKSHOPS))

    def training_step(self, batch, batch_idx):
        image, label = batch
        loss = F.cross_entropy(self.net(image), label, label_smoothing=self.hparams.smoothing)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        image, label = batch
        logits = self.net(image)
        accuracy = (logits.argmax(-1) == label).float().mean()
        self.log_dict({"val_loss": F.cross_entropy(logits, label), "val_accuracy": accuracy}, batch_size=len(label))

    def configure_optimizers(self):
        decay = [p for p in self.net.parameters() if p.ndim > 1]
        plain = [p for p in self.net.parameters() if p.ndim <= 1]
        groups = [{"params": decay, "weight_decay": self.hparams.weight_decay}, {"params": plain, "weight_decay": 0.0}]
        optimizer = torch.optim.SGD(groups, lr=self.hparams.lr, momentum=0.9, nesterov=True)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Rate(L.Callback):
    def __init__(self):
        self.began, self.images = None, 0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.images += len(batch[1])

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            shown = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items() if k.startswith("val")}
            print(f"epoch {trainer.current_epoch}: {shown}")

    def on_train_end(self, trainer, module):
        self.value = self.images / (time.perf_counter() - self.began)


def main():
    L.seed_everything(79)
    rate = Rate()
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[rate],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(FloorClassifier(), datamodule=FloorData())
    print(f"{rate.value:.1f} images/s")


if __name__ == "__main__":
    main()
