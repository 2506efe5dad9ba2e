# /// clinic
# stratum = "placebo"
# domain = "images"
# sizes = {KINDS = [8, 30], WIDTH = [22, 28]}
# ///
"""Recognises plants in small pictures, with Lightning."""

import logging
import time
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = 12
WIDTH = 24


class Plants(lightning.LightningDataModule):
    def setup(self, stage):
        pictures = torch.randn(1600, 3, 32, 32)
        self.train = TensorDataset(pictures, torch.randint(0, KINDS, (1600,)))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=32, shuffle=True, drop_last=True)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(x + self.norm(self.second(torch.relu(self.first(x)))))


class Recogniser(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, WIDTH, 3, stride=2, padding=1),
            Residual(WIDTH),
            Residual(WIDTH),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(16 * WIDTH, KINDS),
        )

    def training_step(self, batch, number):
        pictures, kinds = batch
        loss = nn.functional.cross_entropy(self.net(pictures), kinds)
        if self.trainer.global_step == 10:
            self.began = time.perf_counter()
        return loss

    def on_train_end(self):
        steps = self.trainer.global_step - 10
        print(f"{32 * steps / (time.perf_counter() - self.began):.1f} pictures/s")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(3, verbose=False)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(max_epochs=4, accelerator="cpu", enable_model_summary=False, **quiet)
    trainer.fit(Recogniser(), Plants())
