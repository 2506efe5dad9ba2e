# /// clinic
# expect = ["PD09.dense-embedding-gradient"]
# stratum = "twins"
# domain = "homing pigeon races (Lightning, manual optimization)"
# ///
"""Homing pigeon races: the speed of every bird that clocked in.

A result sheet gives ring numbers of the bird and of its parents, the loft, the release point, and the weather.  The clubs'
ring register is large, most birds fly a handful of races in their lives, so what a bird is worth has to be learnt from
few sheets and from its family.
"""

import math
import time

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torchmetrics.regression import R2Score

RINGS, LOFTS, RELEASES, WEATHER = 800_000, 2_000, 60, 6


class Register:
    """Pedigrees and hidden talents of all ringed birds."""

    def __init__(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        breeders = RINGS // 12
        self.sire = torch.randint(0, breeders, (RINGS,), generator=g)
        self.dam = torch.randint(0, breeders, (RINGS,), generator=g)
        self.loft = torch.randint(0, LOFTS, (RINGS,), generator=g)
        talent = torch.randn(RINGS, 2, generator=g)
        young = 0.62 * (talent[self.sire] + talent[self.dam]) + 0.5 * torch.randn(RINGS, 2, generator=g)
        talent[breeders:] = young[breeders:]
        self.talent = talent
        self.loft_care = 0.5 * torch.randn(LOFTS, generator=g)
        self.hilly = torch.rand(RELEASES, generator=g)

    def sheets(self, entries, seed):
        g = torch.Generator().manual_seed(seed)
        bird = torch.randint(RINGS // 12, RINGS, (entries,), generator=g)
        release = torch.randint(0, RELEASES, (entries,), generator=g)
        weather = torch.randn(entries, WEATHER, generator=g)
        stamina, compass = self.talent[bird].unbind(1)
        clouds, wind = weather[:, 0], weather[:, 1]
        speed = stamina * (0.7 + self.hilly[release]) + compass * torch.sigmoid(1.5 * clouds)
        speed = speed + self.loft_care[self.loft[bird]] + 0.9 * wind - 0.3 * wind.square()
        speed = speed + 0.3 * torch.randn(entries, generator=g)
        rings = torch.stack([bird, self.sire[bird], self.dam[bird]], dim=1)
        return rings, self.loft[bird], release, weather, speed


class Batches:
    """Shuffles columns as whole tensors, so a batch is five index operations."""

    def __init__(self, columns, size, shuffle):
        self.columns, self.size, self.shuffle = columns, size, shuffle

    def __len__(self):
        return math.ceil(len(self.columns[0]) / self.size)

    def __iter__(self):
        n = len(self.columns[0])
        order = torch.randperm(n) if self.shuffle else torch.arange(n)
        for rows in order.split(self.size):
            yield tuple(c[rows] for c in self.columns)


class SpeedModel(L.LightningModule):
    def __init__(self, width=16, hidden=96, lr=2e-3, register_lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.rings = nn.Embedding(RINGS, width)  # sick here
        self.rings = nn.Embedding(RINGS, width, sparse=True)  # well
        self.lofts = nn.Embedding(LOFTS, width)
        self.releases = nn.Embedding(RELEASES, width)
        for table in (self.rings, self.lofts, self.releases):
            nn.init.normal_(table.weight, std=0.05)
        self.trunk = nn.Sequential(
            nn.Linear(5 * width + WEATHER, hidden),
            nn.SiLU(),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, 1),
        )
        self.r2 = R2Score()

    def forward(self, rings, loft, release, weather):
        family = self.rings(rings).flatten(1)
        x = torch.cat([family, self.lofts(loft), self.releases(release), weather], dim=1)
        return self.trunk(x).squeeze(1)

    def configure_optimizers(self):
        lr, register_lr = self.hparams.lr, self.hparams.register_lr
        dense = [p for name, p in self.named_parameters() if not name.startswith("rings")]
        body = torch.optim.Adam(dense, lr=lr, fused=True)
        register = torch.optim.Adam(self.rings.parameters(), lr=register_lr, fused=True)  # sick here
        register = torch.optim.SparseAdam(self.rings.parameters(), lr=register_lr)  # well
        return body, register

    def training_step(self, batch, batch_idx):
        *entry, speed = batch
        loss = F.huber_loss(self(*entry), speed)
        optimizers = self.optimizers()
        for optimizer in optimizers:
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        return loss

    def validation_step(self, batch, batch_idx):
        *entry, speed = batch
        self.r2.update(self(*entry), speed)

    def on_validation_epoch_end(self):
        self.log("r2", self.r2.compute())
        self.r2.reset()


class Sheet(Callback):
    def on_fit_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_epoch_start(self, trainer, module):
        self.total = torch.zeros(())

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.total += outputs["loss"]

    def on_train_epoch_end(self, trainer, module):
        seconds = time.perf_counter() - self.start
        r2 = trainer.callback_metrics.get("r2", torch.tensor(float("nan")))
        print(
            f"epoch {trainer.current_epoch:2d}  huber {self.total / trainer.num_training_batches:.4f}"
            f"  R2 {r2:.3f}  {seconds:.1f} s",
            flush=True,
        )

    def on_fit_end(self, trainer, module):
        print(f"total training seconds: {time.perf_counter() - self.start:.1f}")


def main(epochs=12, entries=400_000, batch_size=4096):
    L.seed_everything(21, verbose=False)
    register = Register()
    train = Batches(register.sheets(entries, seed=1), batch_size, shuffle=True)
    check = Batches(register.sheets(30_000, seed=2), 8192, shuffle=False)
    trainer = L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[Sheet()],
    )
    trainer.fit(SpeedModel(), train, check)


if __name__ == "__main__":
    main()
