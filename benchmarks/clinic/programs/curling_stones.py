# /// clinic
# expect = ["PD16.anomaly-detection"]
# stratum = "twins"
# domain = "curling stone trajectories"
# ///
"""Curling: learn how a stone glides and curls on pebbled ice, from tracked deliveries (Lightning)."""

import logging
import time
import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", module="lightning")

CONFIG = {
    "data": {"deliveries": 16384, "held_out": 1024, "frames": 24, "batch_size": 512, "seed": 11},
    "model": {"hidden": 320, "context": 3, "lr": 1e-3},
    "trainer": {
        "max_epochs": 12,
        "accelerator": "cpu",
        "devices": 1,
        "gradient_clip_val": 1.0,
        "detect_anomaly": True,  # sick here
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    },
}


def deliver(count, frames, generator, dt=0.8):
    """Ground truth: friction that grows at low speed, curl by the rotation, a sweeping effect."""
    rand = lambda *s: torch.rand(*s, generator=generator)
    pos = torch.stack([0.3 * (rand(count) - 0.5), torch.zeros(count)], dim=1)
    speed = 1.9 + 0.5 * rand(count)
    angle = 0.06 * (rand(count) - 0.5)
    vel = torch.stack([speed * angle.sin(), speed * angle.cos()], dim=1)
    spin = (rand(count) * 1.5 + 0.5) * torch.where(rand(count) < 0.5, -1.0, 1.0)
    ice = torch.stack([0.006 + 0.006 * rand(count), rand(count), rand(count)], dim=1)
    track = [torch.cat([pos, vel, spin[:, None]], dim=1)]
    for _ in range(frames):
        v = vel.norm(dim=1).clamp_min(1e-3)
        mu = ice[:, 0] * (1 - 0.3 * ice[:, 1]) * v.rsqrt()
        brake = (9.81 * mu * dt).clamp_max(1.0) / v.clamp_min(0.1)
        side = torch.stack([vel[:, 1], -vel[:, 0]], dim=1) / v[:, None]
        curl = 0.008 * spin.sign() * (1 + 0.5 * ice[:, 2]) / (0.4 + v)
        moving = (v > 0.05).float()[:, None]
        vel = (vel * (1 - brake.clamp_max(1.0))[:, None] + curl[:, None] * side * dt) * moving
        pos = pos + vel * dt
        spin = spin * 0.97
        track.append(torch.cat([pos, vel, spin[:, None]], dim=1))
    return torch.stack(track, dim=1), ice


class DeliveryData(L.LightningDataModule):
    def __init__(self, deliveries, held_out, frames, batch_size, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        track, ice = deliver(deliveries + held_out, frames, g)
        track = track / torch.tensor([1.0, 30.0, 0.2, 2.0, 1.5])
        ice = (ice - ice.mean(0)) / ice.std(0)
        self.train = TensorDataset(track[:deliveries], ice[:deliveries])
        self.held = TensorDataset(track[deliveries:], ice[deliveries:])
        self.batch_size = batch_size

    def _loader(self, dataset, sampler):
        return DataLoader(dataset, batch_size=None, sampler=BatchSampler(sampler, self.batch_size, drop_last=False))

    def train_dataloader(self):
        return self._loader(self.train, RandomSampler(self.train))

    def val_dataloader(self):
        return self._loader(self.held, SequentialSampler(self.held))


class GlideCell(nn.Module):
    """One video frame: state and ice in, change of the state out."""

    def __init__(self, state, context, hidden):
        super().__init__()
        self.inp = nn.Linear(state + context, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, state)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, state, ice):
        h = F.silu(self.inp(torch.cat([state, ice], dim=1)))
        h = h + F.silu(self.mid(h))
        return state + self.out(h)


class StoneModel(L.LightningModule):
    def __init__(self, hidden, context, lr):
        super().__init__()
        self.save_hyperparameters()
        self.cell = GlideCell(5, context, hidden)
        self.train_losses = []

    def forward(self, first, ice, frames):
        states, state = [], first
        for _ in range(frames):
            state = self.cell(state, ice)
            states.append(state)
        return torch.stack(states, dim=1)

    def _loss(self, batch):
        track, ice = batch
        made = self(track[:, 0], ice, track.shape[1] - 1)
        return F.smooth_l1_loss(made, track[:, 1:], beta=0.1), made

    def training_step(self, batch, _):
        loss, _ = self._loss(batch)
        self.train_losses.append(loss.detach())
        return loss

    def validation_step(self, batch, _):
        loss, made = self._loss(batch)
        miss = (made[:, -1, :2] - batch[0][:, -1, :2]) * torch.tensor([1.0, 30.0])
        self.log("val_loss", loss, batch_size=len(made))
        self.log("miss_m", miss.norm(dim=1).mean(), batch_size=len(made))

    def on_train_epoch_end(self):
        m = self.trainer.callback_metrics
        train = torch.stack(self.train_losses).mean()
        self.train_losses.clear()
        print(
            f"epoch {self.current_epoch:2d} train {train:.5f} val {m['val_loss']:.5f} final miss {m['miss_m']:.2f} m",
            flush=True,
        )

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)]


def main():
    L.seed_everything(CONFIG["data"]["seed"], verbose=False)
    data = DeliveryData(**CONFIG["data"])
    model = StoneModel(**CONFIG["model"])
    trainer = L.Trainer(**CONFIG["trainer"])
    begin = time.perf_counter()
    trainer.fit(model, datamodule=data)
    print(f"Training time: {time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
