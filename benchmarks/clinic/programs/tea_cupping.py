# /// clinic
# expect = ["PD15.growing-work"]
# stratum = "twins"
# domain = "tea tasting notes from leaf chemistry"
# ///
"""Tasting notes of tea from the chemistry of the leaf, as a multi-label problem (Lightning)."""

import logging
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics.classification import MultilabelAUROC

NOTES = ["malty", "floral", "grassy", "smoky", "brisk", "stone fruit", "marine", "honey", "earthy", "nutty"]
COMPOUNDS = 72


class Leaves(Dataset):
    """Peak areas of 72 compounds (correlated through a few growing conditions) and the notes of a panel."""

    def __init__(self, lots, seed):
        rules = torch.Generator().manual_seed(404)
        mixing = torch.randn(12, COMPOUNDS, generator=rules) / 3
        first = torch.randn(COMPOUNDS, 12, generator=rules) / 6
        second = torch.randn(12, len(NOTES), generator=rules)
        generator = torch.Generator().manual_seed(seed)
        conditions = torch.randn(lots, 12, generator=generator)
        self.peaks = conditions @ mixing + 0.6 * torch.randn(lots, COMPOUNDS, generator=generator)
        leaning = torch.sin(1.5 * self.peaks @ first) @ second
        panel = leaning + 0.7 * torch.randn(lots, len(NOTES), generator=generator)
        self.notes = (panel > panel.quantile(0.7, dim=0)).long()

    def __len__(self):
        return len(self.peaks)

    def __getitems__(self, lots):
        lots = torch.as_tensor(lots)
        return self.peaks[lots], self.notes[lots]


def whole(batch):
    return batch


class Cup(nn.Module):
    """Residual net over the standardised peaks, one logit per note."""

    def __init__(self, width=256, depth=4):
        super().__init__()
        self.inlet = nn.Sequential(nn.Dropout(0.05), nn.Linear(COMPOUNDS, width))
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width),
                nn.Linear(width, 2 * width),
                nn.SiLU(),
                nn.Linear(2 * width, width),
            )
            for _ in range(depth)
        )
        self.outlet = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, len(NOTES)))

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = x + block(x)
        return self.outlet(x)


class Taster(L.LightningModule):
    def __init__(self, lr=1e-3, steps=1000):
        super().__init__()
        self.save_hyperparameters()
        self.cup = Cup()
        self.train_auroc = MultilabelAUROC(len(NOTES), validate_args=False)
        self.val_auroc = MultilabelAUROC(len(NOTES), validate_args=False)

    def forward(self, peaks):
        return self.cup(peaks)

    def training_step(self, batch, _):
        peaks, notes = batch
        logits = self(peaks)
        loss = F.binary_cross_entropy_with_logits(logits, notes.float())
        self.train_auroc.update(logits.detach().sigmoid(), notes)
        self.log("train/loss", loss, on_step=False, on_epoch=True)
        self.log("train/auroc", self.train_auroc.compute(), prog_bar=True)  # sick here
        return loss

    def on_train_epoch_end(self):
        self.log("train/auroc", self.train_auroc.compute(), prog_bar=True)  # well
        self.train_auroc.reset()

    def validation_step(self, batch, _):
        peaks, notes = batch
        logits = self(peaks)
        self.val_auroc.update(logits.sigmoid(), notes)
        self.log("val/loss", F.binary_cross_entropy_with_logits(logits, notes.float()))

    def on_validation_epoch_end(self):
        self.log("val/auroc", self.val_auroc.compute(), prog_bar=True)
        self.val_auroc.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.02, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2 * self.hparams.lr, self.hparams.steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Summary(L.Callback):
    """A line per few epochs instead of a progress bar, and the duration of the fit."""

    def __init__(self, every):
        self.every = every

    def on_fit_start(self, trainer, _):
        self.begun = time.perf_counter()

    def on_train_epoch_end(self, trainer, _):
        if (trainer.current_epoch + 1) % self.every == 0:
            shown = {k: v.item() for k, v in trainer.callback_metrics.items()}
            print(
                f"epoch {trainer.current_epoch + 1:3d}  " + "  ".join(f"{k} {v:.3f}" for k, v in sorted(shown.items()))
            )

    def on_fit_end(self, trainer, _):
        self.seconds = time.perf_counter() - self.begun


def main():
    warnings.filterwarnings("ignore", message=".*num_workers.*")
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    L.seed_everything(8, verbose=False)

    batch, epochs = 512, 24
    train, tasted = Leaves(24576, seed=1), Leaves(4096, seed=2)
    mean, std = train.peaks.mean(0), train.peaks.std(0)
    for part in (train, tasted):
        part.peaks = (part.peaks - mean) / std
    train_loader = DataLoader(train, batch, shuffle=True, drop_last=True, collate_fn=whole)
    tasted_loader = DataLoader(tasted, 2 * batch, collate_fn=whole)

    summary = Summary(every=4)
    trainer = L.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        callbacks=[summary],
        check_val_every_n_epoch=4,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    )
    trainer.fit(Taster(steps=epochs * len(train_loader)), train_loader, tasted_loader)
    print(f"training seconds {summary.seconds:.2f}")


if __name__ == "__main__":
    main()
