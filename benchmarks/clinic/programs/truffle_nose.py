# /// clinic
# expect = ["PD15.growing-work"]
# stratum = "twins"
# domain = "truffle hunting: electronic nose"
# ///
"""Electronic nose for truffle hunters: is there a ripe truffle under the sniffed spot?

16 gas sensors answer a sniff with 96 samples.  Every spot of the plot is scored at eight depths, so a
sniff carries eight labels.  Trained with Lightning, watched with the area under the ROC curve.
"""

import logging
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics.classification import BinaryAUROC

SENSORS, SAMPLES, DEPTHS = 16, 96, 8


class Sniffs(Dataset):
    """All sniffs in memory; an index list gives a ready batch."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        ripe = torch.rand(count, DEPTHS, generator=g) < 0.3
        t = torch.linspace(0, 1, SAMPLES)
        plume = torch.stack([torch.exp(-(((t - 0.2 - 0.08 * d) / (0.04 + 0.01 * d)) ** 2)) for d in range(DEPTHS)])
        affinity = torch.rand(SENSORS, DEPTHS, generator=torch.Generator().manual_seed(0))
        strength = ripe * (0.5 + torch.rand(count, DEPTHS, generator=g))
        scent = torch.einsum("nd,sd,dt->nst", strength, affinity, plume)
        soil = torch.randn(count, SENSORS, 1, generator=g) * torch.exp(-2 * t)
        self.x = scent + 0.4 * soil + 1.6 * torch.randn(count, SENSORS, SAMPLES, generator=g)
        self.y = ripe.float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def loader(data, batch, shuffle):
    order = RandomSampler(data) if shuffle else SequentialSampler(data)
    return DataLoader(data, sampler=BatchSampler(order, batch, drop_last=shuffle), batch_size=None)


class Nose(L.LightningModule):
    def __init__(self, width=64, lr=2e-3, watch_every=5):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(
            nn.Conv1d(SENSORS, width, 7, padding=3),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Conv1d(width, width, 5, stride=2, padding=2),
            nn.ReLU(inplace=True),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(width * SAMPLES // 4, 64), nn.ReLU(inplace=True), nn.Linear(64, DEPTHS)
        )
        self.train_auroc = BinaryAUROC()
        self.val_auroc = BinaryAUROC()

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = F.binary_cross_entropy_with_logits(logits, y)
        self.train_auroc.update(logits.detach().sigmoid(), y.int())  # here
        if (batch_idx + 1) % self.hparams.watch_every == 0:
            self.log("train_auroc", self.train_auroc.compute())  # here
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(x))
        return loss

    def on_train_epoch_end(self):  # well
        self.train_auroc.reset()  # well

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.val_auroc.update(self(x).sigmoid(), y.int())
        self.log("val_auroc", self.val_auroc, on_epoch=True, batch_size=len(x))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.02, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.hparams.lr, total_steps=int(self.trainer.estimated_stepping_batches)
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


class Basket(L.Callback):
    """Prints an epoch's figures and keeps the time."""

    def on_train_start(self, trainer, module):
        self.start = self.tick = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        seen = trainer.callback_metrics
        now = time.perf_counter()
        print(
            f"epoch {trainer.current_epoch:2d}  loss {seen['train_loss']:.4f}  "
            f"auroc {seen['train_auroc']:.3f} / {seen['val_auroc']:.3f}  {now - self.tick:.2f} s",
            flush=True,
        )
        self.tick = now

    def on_train_end(self, trainer, module):
        print(f"training took {time.perf_counter() - self.start:.1f} s")


def main(epochs=20):
    warnings.filterwarnings("ignore", ".*num_workers.*")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    L.seed_everything(42, verbose=False)
    train, val = Sniffs(9600, seed=1), Sniffs(1024, seed=2)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[Basket()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Nose(), loader(train, 192, shuffle=True), loader(val, 512, shuffle=False))


if __name__ == "__main__":
    main()
