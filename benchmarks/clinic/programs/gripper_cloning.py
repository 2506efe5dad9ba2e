# /// clinic
# expect = ["PD14.unchanging-content"]
# stratum = "twins"
# domain = "imitation learning"
# ///
"""Behaviour cloning for a 7-joint arm: a small transformer reads the last camera features and predicts a chunk of actions."""

import logging
import time

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)

DEMOS, LENGTH = 400, 200
FEATURES, JOINTS = 384, 7
HISTORY, CHUNK = 4, 16


def record_demos(seed):
    """Stand-in for teleoperated episodes: smooth joint paths and camera features that depend on them."""
    g = torch.Generator().manual_seed(seed)
    t = torch.linspace(0, 1, LENGTH)[None, :, None]
    goal, phase, rate = (torch.randn(DEMOS, 1, JOINTS, generator=g) for _ in range(3))
    joints = goal * t + 0.3 * torch.sin(6 * rate * t + phase)
    gripper = (t > 0.5 + 0.1 * phase[..., :1]).float()
    state = torch.cat([joints, gripper], dim=-1)
    camera = torch.randn(2 * JOINTS, FEATURES, generator=g) / JOINTS**0.5
    seen = torch.cat([joints, goal.expand_as(joints)], dim=-1) @ camera
    seen += 0.05 * torch.randn(seen.shape, generator=g)
    return seen.flatten(0, 1), state.flatten(0, 1)


class DemoModule(L.LightningDataModule):
    """Only positions (demo, time) travel through the loaders; the policy gathers its own windows."""

    def __init__(self, batch_size=32, steps_per_epoch=50, held_out=20):
        super().__init__()
        self.batch_size = batch_size
        usable = torch.arange(HISTORY - 1, LENGTH - CHUNK)
        starts = (torch.arange(DEMOS)[:, None] * LENGTH + usable).view(DEMOS, -1)
        self.train_set = TensorDataset(starts[held_out:].flatten())
        self.val_set = TensorDataset(starts[:held_out, ::16].flatten())
        self.draws = steps_per_epoch * batch_size

    def train_dataloader(self):
        sampler = torch.utils.data.RandomSampler(self.train_set, replacement=True, num_samples=self.draws)
        return DataLoader(self.train_set, self.batch_size, sampler=sampler)

    def val_dataloader(self):
        return DataLoader(self.val_set, 4 * self.batch_size)


class ChunkPolicy(L.LightningModule):
    def __init__(self, features, state, dim=96, layers=3, lr=1e-3):
        super().__init__()
        self.save_hyperparameters("dim", "layers", "lr")
        self.register_buffer("demo_features", features)  # sick here
        self.register_buffer("demo_features", features, persistent=False)  # well
        self.register_buffer("demo_state", state, persistent=False)
        self.register_buffer("state_mean", state.mean(0))
        self.register_buffer("state_std", state.std(0))
        self.see = nn.Linear(features.shape[1], dim)
        self.feel = nn.Linear(state.shape[1], dim)
        self.query = nn.Parameter(0.02 * torch.randn(CHUNK, dim))
        self.place = nn.Parameter(0.02 * torch.randn(2 * HISTORY, dim))
        layer = nn.TransformerEncoderLayer(dim, 4, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.act = nn.Linear(dim, state.shape[1])

    def gather(self, now):
        back = torch.arange(1 - HISTORY, 1, device=now.device)
        ahead = torch.arange(1, CHUNK + 1, device=now.device)

        def normal(state):
            return (state - self.state_mean) / self.state_std

        past = now[:, None] + back
        return self.demo_features[past], normal(self.demo_state[past]), normal(self.demo_state[now[:, None] + ahead])

    def forward(self, features, state):
        context = torch.cat([self.see(features), self.feel(state)], dim=1) + self.place
        tokens = torch.cat([context, self.query.expand(len(context), -1, -1)], dim=1)
        return self.act(self.body(tokens)[:, -CHUNK:])

    def training_step(self, batch, _):
        features, state, target = self.gather(batch[0])
        loss = F.smooth_l1_loss(self(features, state), target)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        features, state, target = self.gather(batch[0])
        guess = self(features, state)
        self.log("val_mse", F.mse_loss(guess, target), batch_size=len(target))
        self.log("val_gripper", F.l1_loss(guess[..., -1], target[..., -1]), batch_size=len(target))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), self.hparams.lr, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.trainer.estimated_stepping_batches)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Rate(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 5:
            self.start = time.perf_counter()

    def on_train_end(self, trainer, _):
        metrics = {name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()}
        print(metrics)
        print(f"{(trainer.global_step - 5) / (time.perf_counter() - self.start):.3f} steps/s")


def main():
    L.seed_everything(3, verbose=False)
    features, state = record_demos(3)
    policy = ChunkPolicy(features, state)
    keep_best = ModelCheckpoint(dirpath="policies", filename="{epoch}-{val_mse:.3f}", monitor="val_mse", save_top_k=2)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=20,
        logger=CSVLogger("logs"),
        callbacks=[keep_best, LearningRateMonitor("epoch"), Rate()],
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        log_every_n_steps=25,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(policy, datamodule=DemoModule())


if __name__ == "__main__":
    main()
