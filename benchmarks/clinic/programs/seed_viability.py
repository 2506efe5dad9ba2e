# /// clinic
# expect = ["PD14.whole-storages"]
# stratum = "twins"
# domain = "near-infrared spectra of a seed bank"
# ///
"""Germination forecast for seed bank accessions from near-infrared transmission spectra (Lightning)."""

import argparse
import shutil
import tempfile
import time
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

warnings.filterwarnings("ignore", ".*does not have many workers.*")
BANDS = 2048


def scan_seeds(n, seed):
    """Absorbance spectra: water, lipid, protein and starch bands whose mix tells the viability."""
    g = torch.Generator().manual_seed(seed)
    wave = torch.linspace(0, 1, BANDS)
    centres = torch.tensor([0.11, 0.24, 0.37, 0.52, 0.66, 0.81])
    widths = torch.tensor([0.03, 0.02, 0.025, 0.04, 0.02, 0.03])
    basis = torch.exp(-(((wave - centres[:, None]) / widths[:, None]) ** 2))
    content = torch.rand(n, len(centres), generator=g)
    spectra = content @ basis
    spectra += 0.3 * torch.rand(n, 1, generator=g) + 0.4 * torch.rand(n, 1, generator=g) * wave
    spectra += 0.15 * torch.randn(n, BANDS, generator=g)
    moisture, lipid, protein = content[:, 0], content[:, 2], content[:, 4]
    viability = torch.sigmoid(5 * (protein - moisture * lipid) - 2 * (content[:, 3] - 0.5) ** 2 - 0.8)
    return spectra, viability


class Accessions(Dataset):
    def __init__(self, spectra, viability):
        self.spectra, self.viability = spectra, viability

    def __len__(self):
        return len(self.viability)

    def __getitems__(self, rows):
        rows = torch.as_tensor(rows)
        return self.spectra[rows], self.viability[rows]


class SeedBank(L.LightningDataModule):
    def __init__(self, accessions, per_epoch, batch):
        super().__init__()
        self.accessions, self.per_epoch, self.batch = accessions, per_epoch, batch
        self.train_set = self.val_set = None

    def setup(self, stage):
        if self.train_set is None:
            self.train_set = Accessions(*scan_seeds(self.accessions, 1))
            self.val_set = Accessions(*scan_seeds(2048, 2))

    def train_dataloader(self):
        draw = RandomSampler(self.train_set, num_samples=self.per_epoch)
        return DataLoader(self.train_set, self.batch, sampler=draw, drop_last=True, collate_fn=tuple)

    def val_dataloader(self):
        return DataLoader(self.val_set, 512, collate_fn=tuple)


class ViabilityNet(L.LightningModule):
    def __init__(self, lr, references=16):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(
            nn.LayerNorm(BANDS),
            nn.Linear(BANDS, 256),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(256, 128),
            nn.GELU(),
            nn.Linear(128, 1),
        )

    def forward(self, spectra):
        return self.net(spectra).squeeze(1)

    def training_step(self, batch, index):
        spectra, viability = batch
        return nn.functional.binary_cross_entropy_with_logits(self(spectra), viability)

    def validation_step(self, batch, index):
        spectra, viability = batch
        error = (self(spectra).sigmoid() - viability).abs().mean()
        self.log("val_mae", error, batch_size=len(viability))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=0.01)
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "interval": "epoch"}}

    def on_save_checkpoint(self, checkpoint):
        # the curators' viewer draws a few known accessions next to every new one
        known = self.trainer.datamodule.train_set
        k = self.hparams.references
        checkpoint["reference_spectra"] = known.spectra[:k]  # sick here
        checkpoint["reference_spectra"] = known.spectra[:k].clone()  # well
        checkpoint["reference_viability"] = known.viability[:k].clone()


class Report(Callback):
    def on_train_start(self, trainer, module):
        self.started = time.perf_counter()

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            mae = trainer.callback_metrics["val_mae"].item()
            print(f"epoch {trainer.current_epoch + 1:3d}  viability off by {mae:.4f}", flush=True)

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.started


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--accessions", type=int, default=24576)
    parser.add_argument("--per-epoch", type=int, default=12288)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=55)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    L.seed_everything(5, verbose=False)
    folder = tempfile.mkdtemp(prefix="seedbank_")
    report = Report()
    keeper = ModelCheckpoint(folder, filename="viability-{epoch:03d}", save_top_k=1)
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=[keeper, report],
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(ViabilityNet(args.lr), datamodule=SeedBank(args.accessions, args.per_epoch, args.batch))
    shutil.rmtree(folder)
    print(f"total training seconds: {report.seconds:.2f}")


if __name__ == "__main__":
    main()
