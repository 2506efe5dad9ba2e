# /// clinic
# expect = ["PD20.metrics-in-each-step"]
# stratum = "twins"
# domain = "text classification"
# ///
"""Multi-label toxicity of comments (six labels, as in the Jigsaw challenge) with a small BiGRU, in Lightning."""

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MultilabelAUROC


LABELS = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]
VOCAB = 8000
LENGTH = 32
BATCH = 128


def make_comments(count, seed):
    """Zipf-distributed word ids; every label has its own list of trigger words."""
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.zipf(1.25, size=(count, LENGTH)), VOCAB - 1)
    triggers = np.random.default_rng(99).integers(50, 400, size=(len(LABELS), 30))
    targets = np.zeros((count, len(LABELS)), dtype=np.float32)
    for k, listed in enumerate(triggers):
        hits = np.isin(words, listed).sum(axis=1)
        targets[:, k] = rng.random(count) < 1 / (1 + np.exp(3.0 - 2.0 * hits))
    return TensorDataset(torch.from_numpy(words).long(), torch.from_numpy(targets))


class ToxicityModule(L.LightningModule):
    def __init__(self, embed=64, hidden=64, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.embedding = nn.Embedding(VOCAB, embed, padding_idx=0)
        self.encoder = nn.GRU(embed, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.Linear(4 * hidden, 128), nn.ReLU(), nn.Linear(128, len(LABELS)))
        self.train_auroc = MultilabelAUROC(num_labels=len(LABELS))
        self.val_auroc = MultilabelAUROC(num_labels=len(LABELS))

    def forward(self, words):
        states, _ = self.encoder(self.embedding(words))
        pooled = torch.cat([states.mean(dim=1), states.amax(dim=1)], dim=-1)
        return self.head(pooled)

    def training_step(self, batch, batch_idx):
        words, targets = batch
        logits = self(words)
        loss = F.binary_cross_entropy_with_logits(logits, targets)
        self.log("train_loss", loss)
        self.train_auroc.update(logits.detach().sigmoid(), targets.int())
        self.log("train_auroc", self.train_auroc.compute())  # sick here
        self.log("train_auroc", self.train_auroc, on_step=False, on_epoch=True)  # well
        return loss

    def on_train_epoch_end(self):
        self.train_auroc.reset()  # sick
        return  # well

    def validation_step(self, batch, batch_idx):
        words, targets = batch
        logits = self(words)
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, targets))
        self.val_auroc.update(logits.sigmoid(), targets.int())
        self.log("val_auroc", self.val_auroc, on_step=False, on_epoch=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4, fused=True)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class ConsoleProgress(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if batch_idx % 40 == 0:
            print(f"epoch {trainer.current_epoch} batch {batch_idx:4d} loss {outputs['loss'].item():.4f}", flush=True)

    def on_validation_epoch_end(self, trainer, module):
        shown = {k: round(v.item(), 4) for k, v in trainer.callback_metrics.items() if k.startswith("val")}
        print(f"epoch {trainer.current_epoch} {shown}", flush=True)


def loader(dataset, shuffle):
    order = torch.utils.data.RandomSampler if shuffle else torch.utils.data.SequentialSampler
    sampler = order(dataset)
    batches = torch.utils.data.BatchSampler(sampler, BATCH, drop_last=shuffle)
    return DataLoader(dataset, sampler=batches, batch_size=None)


def main():
    L.seed_everything(5)
    train = make_comments(26000, seed=1)
    valid = make_comments(3000, seed=2)
    module = ToxicityModule()
    trainer = L.Trainer(
        max_epochs=2,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        callbacks=[ConsoleProgress()],
    )
    trainer.fit(module, loader(train, shuffle=True), loader(valid, shuffle=False))
    for name, value in trainer.callback_metrics.items():
        print(f"{name}: {value.item():.4f}")


if __name__ == "__main__":
    main()
