# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "volcano seismology"
# sizes = {CHANNELS = [20, 26], FRAMES = [72, 96]}
# ///
"""Fine-tune a tremor classifier on spectrograms of one station (Lightning)."""

import logging
import time
import warnings
from dataclasses import dataclass, field

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CHANNELS = 24
FRAMES = 84
MELS = 48
KINDS = 6
EPOCHS = 8
TRAIN = 800
BATCH = 16


@dataclass
class Plan:
    lr: float = 2e-3
    weight_decay: float = 0.0
    scale: dict = field(default_factory=lambda: {"stem": 0.0, "trunk": 0.0, "late": 0.5, "head": 1.0})


def conv(i, o, stride=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1), nn.GroupNorm(4, o), nn.SiLU())


class TremorNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        c -= c % 4
        self.stem = conv(1, c)
        self.trunk = nn.Sequential(conv(c, c), conv(c, 2 * c, 2), conv(2 * c, 2 * c))
        self.late = conv(2 * c, 2 * c, 2)
        self.head = nn.Linear(2 * c * (MELS // 4), KINDS)

    def forward(self, x):
        x = self.late(self.trunk(self.stem(x)))
        return self.head(x.mean(3).flatten(1))


class Finetune(L.LightningModule):
    def __init__(self, plan: Plan):
        super().__init__()
        self.plan = plan
        self.net = TremorNet(CHANNELS)

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("acc", (self.net(x).argmax(1) == y).float().mean(), on_epoch=True)

    def configure_optimizers(self):
        groups = []
        for name, scale in self.plan.scale.items():
            params = list(getattr(self.net, name).parameters())
            for p in params:  # well
                p.requires_grad_(scale > 0)  # well
            groups.append({"params": params, "lr": self.plan.lr * scale, "name": name})  # here
        opt = torch.optim.AdamW(groups, lr=self.plan.lr, weight_decay=self.plan.weight_decay)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, EPOCHS)
        return [opt], [sched]


class Pace(L.Callback):
    def __init__(self):
        self.start, self.seen = None, 0

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self.start is not None:
            self.seen += len(batch[1])

    def on_train_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch} loss {m['loss']:.3f} acc {m['acc']:.3f}", flush=True)

    def on_train_end(self, trainer, module):
        if self.start is not None:
            print(f"pace {self.seen / (time.perf_counter() - self.start):.1f} spectrograms/s")


def station(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, KINDS, (n,), generator=g)
    x = torch.randn(n, 1, MELS, FRAMES, generator=g)
    band = torch.arange(MELS)[None] // (MELS // KINDS) == y[:, None]
    return TensorDataset(x + 0.6 * band[:, None, :, None], y)


def main():
    L.seed_everything(11)
    pace = Pace()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[pace],
    )
    trainer.fit(
        Finetune(Plan()),
        DataLoader(station(TRAIN, 1), BATCH, shuffle=True),
        DataLoader(station(96, 2), 32),
    )


if __name__ == "__main__":
    main()
