# /// clinic
# expect = ["PD15.longer-rounds"]
# stratum = "twins"
# domain = "time to failure of hard disks, Cox model (Lightning)"
# ///
"""Time to failure of hard disks from two weeks of SMART readings: a Cox model with a convolutional risk score.

Most disks have not failed when the study ends (censored), so the model is trained with the partial likelihood and judged by the
concordance index: of two disks, how often has the one that fails first the higher risk?
"""

import time

import lightning as L
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset


DAYS, READINGS = 14, 24


def concordance(risk, days, failed, rows=512):
    """Harrell's C over all comparable pairs; goes through the pairs in strips so that they need not all be in memory."""
    order = failed.nonzero().squeeze(1)
    agree = pairs = 0.0
    for strip in order.split(rows):
        later = days[strip, None] < days[None, :]
        gap = risk[strip, None] - risk[None, :]
        agree += ((gap > 0) & later).sum().item() + 0.5 * ((gap == 0) & later).sum().item()
        pairs += later.sum().item()
    return agree / max(pairs, 1.0)


class Concordance(Callback):
    """Prints the concordance index of the validation disks after each epoch and remembers the best one."""

    def __init__(self):
        self.seen = []  # here
        self.best = 0.0
        self.started = time.time()

    def on_validation_batch_end(self, trainer, module, outputs, batch, batch_idx, dataloader_idx=0):
        self.seen.append(outputs)  # here

    def on_validation_epoch_end(self, trainer, module):
        risk = torch.cat([output["risk"] for output in self.seen])  # here
        days = torch.cat([output["days"] for output in self.seen])  # here
        failed = torch.cat([output["failed"] for output in self.seen])  # here
        index = concordance(risk, days, failed)  # here
        self.seen.clear()  # well
        self.best = max(self.best, index)
        loss = trainer.callback_metrics.get("train_loss", float("nan"))
        print(
            f"epoch {trainer.current_epoch:2d}  loss {float(loss):.4f}  C {index:.4f}  {time.time() - self.started:5.1f} s",
            flush=True,
        )


class RiskNet(nn.Module):
    """One log hazard for each disk from its (readings, days) table."""

    def __init__(self, width=96):
        super().__init__()
        self.days = nn.Sequential(
            nn.Conv1d(READINGS, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.BatchNorm1d(width),
            nn.SiLU(),
            nn.Conv1d(width, width, 3, padding=1),
            nn.SiLU(),
        )
        self.score = nn.Sequential(nn.Linear(2 * width, 128), nn.SiLU(), nn.Dropout(0.2), nn.Linear(128, 1))

    def forward(self, readings):
        h = self.days(readings)
        return self.score(torch.cat([h.mean(-1), h[..., -1]], dim=1)).squeeze(1)


def partial_likelihood(risk, days, failed):
    """Negative Cox partial log likelihood of a batch (Breslow)."""
    order = torch.argsort(days, descending=True)
    risk, failed = risk[order], failed[order]
    at_risk = torch.logcumsumexp(risk, dim=0)
    return -((risk - at_risk) * failed).sum() / failed.sum().clamp_min(1)


class DiskSurvival(L.LightningModule):
    def __init__(self, rate=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = RiskNet()

    def training_step(self, batch, batch_idx):
        readings, days, failed = batch
        loss = partial_likelihood(self.net(readings), days, failed)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        readings, days, failed = batch
        return {"risk": self.net(readings), "days": days, "failed": failed}

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate, weight_decay=1e-3)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3 * self.hparams.rate, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Disks(L.LightningDataModule):
    def __init__(self, train=8192, held_out=900, batch=256):
        super().__init__()
        self.sizes, self.batch = (train, held_out), batch

    def setup(self, stage=None):
        rng = np.random.default_rng(8)
        self.train_set, self.held_out_set = [self.simulate(size, rng) for size in self.sizes]

    @staticmethod
    def simulate(count, rng):
        """Readings drift; drifts of some readings shorten the life. The study stops after two years."""
        drift = rng.normal(0, 0.15, (count, READINGS, 1)).astype(np.float32)
        level = rng.normal(0, 1, (count, READINGS, 1)).astype(np.float32)
        noise = rng.standard_normal((count, READINGS, DAYS), dtype=np.float32)
        table = level + drift * np.arange(DAYS, dtype=np.float32) + 0.5 * noise
        hazard = 6 * drift[:, :6, 0].sum(1) + 0.5 * level[:, 4:9, 0].sum(1) + 0.8 * level[:, 0, 0] * level[:, 1, 0]
        life = rng.exponential(900 * np.exp(-hazard))
        end = rng.uniform(200, 730, count)
        days = np.minimum(life, end).astype(np.float32)
        failed = (life <= end).astype(np.float32)
        return TensorDataset(torch.from_numpy(table), torch.from_numpy(days), torch.from_numpy(failed))

    def train_dataloader(self):
        rows = BatchSampler(RandomSampler(self.train_set), self.batch, drop_last=True)
        return DataLoader(self.train_set, sampler=rows, batch_size=None)

    def val_dataloader(self):
        rows = BatchSampler(SequentialSampler(self.held_out_set), self.batch, drop_last=False)
        return DataLoader(self.held_out_set, sampler=rows, batch_size=None)


def main():
    L.seed_everything(8, verbose=False)
    judge = Concordance()
    trainer = L.Trainer(
        max_epochs=24,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        callbacks=[judge],
    )
    trainer.fit(DiskSurvival(), datamodule=Disks())
    print(f"best concordance index {judge.best:.4f}")


if __name__ == "__main__":
    main()
