# /// clinic
# expect = ["PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = "early warning of blade icing on wind turbines (Lightning)"
# ///
"""Early warning of blade icing on wind turbines from two hours of SCADA channels, trained with Lightning."""

import math

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision


CHANNELS = 8  # wind speed, power, rotor speed, pitch, nacelle temperature, humidity, yaw error, vibration
MINUTES = 120
SLOTS = 6  # one warning per twenty minutes
WINDOWS = 30_000
BATCH = 96
EPOCHS = 3


def simulate_scada(count: int, seed: int):
    """Windows of a turbine in winter; ice costs power for the wind it gets and makes the rotor shake."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, MINUTES)
    iced = (torch.rand(count, generator=g) < 0.12).float()
    onset = torch.rand(count, 1, generator=g)
    severity = iced[:, None] * torch.sigmoid(12 * (t - onset)) * (0.3 + 0.7 * torch.rand(count, 1, generator=g))
    wind = 8 + 3 * torch.randn(count, 1, generator=g) + torch.sin(2 * math.pi * (t + torch.rand(count, 1, generator=g)))
    temperature = -4 * iced[:, None] + 3 * torch.randn(count, 1, generator=g) - t
    power = (wind / 12).clamp(0, 1) ** 3 * (1 - 0.5 * severity)
    channels = torch.stack(
        [
            (wind - 8) / 3,
            2 * power - 1,
            power.sqrt() - 0.5 * severity,
            (wind - 11).clamp(min=0) / 3,
            temperature / 4,
            0.3 * iced[:, None] + torch.zeros(count, MINUTES),
            torch.zeros(count, MINUTES),
            severity,
        ],
        dim=1,
    )
    channels += torch.randn(count, CHANNELS, MINUTES, generator=g)
    labels = (severity.view(count, SLOTS, -1).mean(dim=2) > 0.25).float()
    return channels, labels


class IcingNet(nn.Module):
    def __init__(self, width: int = 40):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(CHANNELS, width, 5, stride=2, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 5, padding=2),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, 2 * width, 5, stride=2, padding=2),
            nn.BatchNorm1d(2 * width),
            nn.ReLU(),
        )
        self.pool = nn.AvgPool1d(MINUTES // 4 // SLOTS)
        self.head = nn.Conv1d(4 * width, 1, 1)

    def forward(self, x):
        h = self.body(x)
        around = h.mean(dim=2, keepdim=True).expand(-1, -1, SLOTS)
        return self.head(torch.cat([self.pool(h), around], dim=1)).squeeze(1)


class IcingWarning(L.LightningModule):
    def __init__(self, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = IcingNet()
        self.register_buffer("ice_weight", torch.tensor(4.0))
        self.train_auroc = BinaryAUROC()
        self.train_ap = BinaryAveragePrecision()
        self.val_auroc = BinaryAUROC()

    def training_step(self, batch, batch_index):
        windows, iced = batch
        logits = self.net(windows)
        loss = F.binary_cross_entropy_with_logits(logits, iced, pos_weight=self.ice_weight)
        scores, truth = logits.detach().sigmoid(), iced.long()
        self.train_auroc.update(scores, truth)
        self.train_ap.update(scores, truth)
        self.log("train/auroc", self.train_auroc.compute())  # sick here
        self.log("train/ap", self.train_ap.compute())  # sick here
        self.log("train/auroc", self.train_auroc, on_step=False, on_epoch=True)  # well
        self.log("train/ap", self.train_ap, on_step=False, on_epoch=True)  # well
        self.log("train/loss", loss)
        return loss

    def on_train_epoch_end(self):  # sick here
        self.train_auroc.reset()  # sick here
        self.train_ap.reset()  # sick here

    def validation_step(self, batch, batch_index):
        windows, iced = batch
        logits = self.net(windows)
        self.val_auroc.update(logits.sigmoid(), iced.long())
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, iced, pos_weight=self.ice_weight))
        self.log("val/auroc", self.val_auroc, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-2, fused=True)
        total = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Progress(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        if (batch_index + 1) % 60 == 0:
            print(
                f"epoch {trainer.current_epoch} batch {batch_index + 1} loss {outputs['loss'].item():.4f}", flush=True
            )

    def on_train_epoch_end(self, trainer, module):
        shown = {name: round(float(value), 4) for name, value in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch} done: {shown}", flush=True)


def batches(windows, labels, sampler_class, size: int) -> DataLoader:
    """Takes whole batches out of the tensors by their indices."""
    dataset = TensorDataset(windows, labels)
    return DataLoader(dataset, sampler=BatchSampler(sampler_class(dataset), size, drop_last=False), batch_size=None)


def main() -> None:
    L.seed_everything(7)
    windows, iced = simulate_scada(WINDOWS, seed=1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=EPOCHS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[Progress()],
    )
    trainer.fit(
        IcingWarning(),
        batches(windows[:-3000], iced[:-3000], RandomSampler, BATCH),
        batches(windows[-3000:], iced[-3000:], SequentialSampler, 1000),
    )


if __name__ == "__main__":
    main()
