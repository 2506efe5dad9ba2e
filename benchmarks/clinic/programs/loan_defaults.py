# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "loan defaults"
# ///
"""Residual network on tabular loan files that predicts defaults, trained with Lightning."""

import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC

BATCH, STEPS = 512, 1000


def make_loans(count=102_400, columns=40):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(count, columns, generator=g)
    w = torch.randn(columns, generator=g) / columns**0.5
    risk = x @ w + 0.8 * x[:, 0] * x[:, 1] - 0.6 * x[:, 2].abs()
    y = (risk + 0.5 * torch.randn(count, generator=g) > 0.6).float()
    return TensorDataset(x, y)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Dropout(0.1), nn.Linear(width, width)
        )

    def forward(self, h):
        return h + self.inner(h)


class DefaultModel(L.LightningModule):
    def __init__(self, columns=40, width=192, depth=3):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(columns, width), *[Block(width) for _ in range(depth)], nn.LayerNorm(width), nn.Linear(width, 1)
        )
        self.auroc = BinaryAUROC()

    def training_step(self, batch, index):
        x, y = batch
        logit = self.net(x).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(logit, y)
        self.log("loss", loss, prog_bar=True)
        self.auroc.update(logit.detach(), y.long())
        self.log("auroc", self.auroc.compute(), prog_bar=True)  # sick here
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} auroc {self.auroc.compute():.4f}")
        self.auroc.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=1e-3, weight_decay=1e-2)
        plan = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": plan, "interval": "step"}}


class Clock(L.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        if trainer.global_step == 5:
            self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.rate = (trainer.global_step - 5) / (time.perf_counter() - self.start)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(0, verbose=False)
    loader = DataLoader(make_loans(), batch_size=BATCH, shuffle=True, drop_last=True)
    clock = Clock()
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        callbacks=[clock],
        gradient_clip_val=1.0,
    )
    trainer.fit(DefaultModel(), loader)
    rate = clock.rate
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
