# /// clinic
# expect = ["PD15.repeated-hooks"]
# stratum = "twins"
# domain = "tuning round on a pipe organ"
# ///
"""Pipe organ tuning round: hear which stop is drawn and how far it has drifted.

Each example is a 48 x 48 patch of the harmonic spectrogram (partials by time) of one sustained
pipe.  The net names the stop (principal, flute, reed, string, mixture) and estimates the
detuning in cents.  A callback keeps an eye on units that have gone silent.
"""

import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STOPS = 5
SIDE = 48


def voice_pipes(count, seed):
    rng = np.random.default_rng(seed)
    partial = np.arange(1, SIDE + 1)[None, :, None]
    clock = np.linspace(0, 1, SIDE)[None, None, :]
    stop = rng.integers(STOPS, size=count)
    decay = np.array([0.22, 0.55, 0.07, 0.13, 0.16])[stop][:, None, None]
    odd = np.array([1.0, 0.35, 1.0, 0.9, 0.6])[stop][:, None, None]
    chiff = np.array([0.3, 0.5, 0.1, 0.8, 0.2])[stop][:, None, None]
    cents = rng.uniform(-12, 12, size=count)
    level = np.exp(-decay * partial) * np.where(partial % 2 == 0, odd, 1.0)
    attack = 1 - np.exp(-(4 + 22 * (1 - chiff)) * clock)
    beating = 1 + 0.4 * np.cos(0.55 * cents[:, None, None] * np.sqrt(partial) * clock + 0.8)
    patch = np.log1p(40 * level * attack * beating) + rng.normal(0, 0.12, (count, SIDE, SIDE))
    patch = (patch - patch.mean()) / patch.std()
    return TensorDataset(
        torch.from_numpy(patch[:, None].astype(np.float32)),
        torch.from_numpy(stop),
        torch.from_numpy((cents / 12).astype(np.float32)),
    )


class PipeNet(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.lr = lr
        self.ear = nn.Sequential(
            nn.Conv2d(1, 32, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 96, 3, padding=1),
            nn.ReLU(),
        ).to(memory_format=torch.channels_last)
        self.stop = nn.Linear(96, STOPS)
        self.tuning = nn.Sequential(nn.Linear(96 * 12, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, patch):
        h = self.ear(patch.contiguous(memory_format=torch.channels_last))
        return self.stop(h.mean((2, 3))), self.tuning(h.mean(2).flatten(1)).squeeze(1)

    def losses(self, batch):
        patch, stop, drift = batch
        logits, guess = self(patch)
        return F.cross_entropy(logits, stop) + 2 * F.smooth_l1_loss(guess, drift), logits, guess

    def training_step(self, batch, _):
        return self.losses(batch)[0]

    def validation_step(self, batch, _):
        loss, logits, guess = self.losses(batch)
        self.log("val_loss", loss)
        self.log("val_stop", (logits.argmax(1) == batch[1]).float().mean())
        self.log("val_cents", 12 * (guess - batch[2]).abs().mean())

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [45, 65], gamma=0.4)
        return [optimizer], [schedule]


class SilentUnits(L.Callback):
    """Share of channels of each ReLU that gave nothing but zeros for an epoch."""

    def __init__(self, watch=nn.ReLU):
        self.watch = watch
        self.levels = {}
        self.handles = []  # well

    def _listen(self, name):
        def hook(module, inputs, output):
            if not module.training:
                return
            level = output.detach().mean([d for d in range(output.dim()) if d != 1])
            self.levels[name] = self.levels.get(name, 0) + level

        return hook

    def on_train_epoch_start(self, trainer, pl_module):
        self.levels.clear()
        for name, module in pl_module.named_modules():
            if isinstance(module, self.watch):
                module.register_forward_hook(self._listen(name))  # sick here
                self.handles.append(module.register_forward_hook(self._listen(name)))  # well

    def on_train_epoch_end(self, trainer, pl_module):
        for handle in self.handles:  # well
            handle.remove()  # well
        self.handles.clear()  # well
        if (trainer.current_epoch + 1) % 20 == 0:
            silent = {k: f"{(v == 0).float().mean().item():.0%}" for k, v in self.levels.items()}
            print(f"epoch {trainer.current_epoch + 1}: silent {silent}")


class Stopwatch(L.Callback):
    def on_train_start(self, trainer, pl_module):
        self.began = time.perf_counter()

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            seen = {k: round(v.item(), 3) for k, v in trainer.callback_metrics.items()}
            print(f"after epoch {trainer.current_epoch + 1}: {seen}")

    def on_train_end(self, trainer, pl_module):
        print(f"total training seconds: {time.perf_counter() - self.began:.1f}")


def main():
    L.seed_everything(5, verbose=False)
    train = DataLoader(voice_pipes(448, 1), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(voice_pipes(240, 2), batch_size=32)
    trainer = L.Trainer(
        max_epochs=80,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        check_val_every_n_epoch=20,
        callbacks=[SilentUnits(), Stopwatch()],
    )
    trainer.fit(PipeNet(), train, val)


if __name__ == "__main__":
    main()
