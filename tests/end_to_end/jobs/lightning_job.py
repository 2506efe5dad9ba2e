"""A healthy Lightning job of 3 epochs of 20 steps, with validation."""

import logging
import sys

import lightning
import tiny
import torch
from torch import nn


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = tiny.network(width=128, depth=24)

    def training_step(self, batch, index):
        inputs, labels = batch
        return nn.functional.cross_entropy(self.layers(inputs), labels)

    def validation_step(self, batch, index):
        self.log("loss", self.training_step(batch, index))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
trainer = lightning.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=sys.argv[1],
)
trainer.fit(Module(), tiny.batches(1280, 128, batch_size=64), tiny.batches(128, 128, batch_size=64))
print("steps", trainer.global_step)
