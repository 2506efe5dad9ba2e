# /// clinic
# expect = ["PD07.float64"]
# stratum = "twins"
# domain = "sail lofts"
# ///
# %% [markdown]
# # Surrogate of the loft's panel code
# From the design table of a genoa (camber, draft, twist, cloth, trim, wind) to the pressure at 48 taps and the three
# coefficients of lift, drag and heeling moment. The table comes out of the loft's parameter study as a data frame.

# %%
import time

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection, R2Score
from torchmetrics.regression import MeanAbsoluteError

L.seed_everything(11)
SAILS = 14_000
TAPS = 48
EPOCHS = 12
BATCH = 256


# %%
def parameter_study(sails, rng):
    """One row for each computed sail."""
    study = pd.DataFrame(
        {
            "luff_m": rng.normal(13.5, 1.2, sails),
            "foot_m": rng.normal(5.1, 0.5, sails),
            "camber_low": rng.uniform(0.08, 0.16, sails),
            "camber_mid": rng.uniform(0.09, 0.17, sails),
            "camber_high": rng.uniform(0.07, 0.14, sails),
            "draft_low": rng.uniform(0.32, 0.48, sails),
            "draft_mid": rng.uniform(0.34, 0.50, sails),
            "draft_high": rng.uniform(0.34, 0.52, sails),
            "twist_deg": rng.uniform(4, 24, sails),
            "headstay_sag_cm": rng.gamma(3, 4, sails),
            "cloth_modulus": rng.lognormal(3.1, 0.2, sails),
            "sheet_angle_deg": rng.uniform(7, 18, sails),
            "apparent_wind_ms": rng.uniform(5, 16, sails),
            "apparent_angle_deg": rng.uniform(18, 45, sails),
            "heel_deg": rng.uniform(0, 28, sails),
        }
    )
    study["aspect"] = study.luff_m**2 / (0.5 * study.luff_m * study.foot_m)
    study["entry_deg"] = np.degrees(np.arctan(4 * study.camber_mid / study.draft_mid))
    study["incidence_deg"] = study.apparent_angle_deg - study.sheet_angle_deg - 0.4 * study.twist_deg
    study["dynamic_pressure"] = 0.5 * 1.225 * study.apparent_wind_ms**2
    return study


def panel_code(study, rng):
    """Thin-foil pressures with a stall term, three heights of 16 taps, and the coefficients integrated from them."""
    chord = np.linspace(0.02, 0.98, TAPS // 3)
    parts = []
    for height, camber, draft, wash in ((0.2, "camber_low", "draft_low", 0.1), (0.5, "camber_mid", "draft_mid", 0.5),
                                        (0.8, "camber_high", "draft_high", 0.9)):  # fmt: skip
        angle = np.radians(study.incidence_deg - wash * study.twist_deg * 0.3).to_numpy()[:, None]
        suction = np.sin(angle) * np.sqrt((1 - chord) / chord)
        bump = study[camber].to_numpy()[:, None] * np.exp(-(((chord - study[draft].to_numpy()[:, None]) / 0.2) ** 2))
        stall = 1 / (1 + np.exp((np.degrees(angle) - 16) / 2))
        parts.append((suction * stall + 9 * bump) * (1 - 0.3 * height))
    taps = pd.DataFrame(np.hstack(parts), columns=[f"cp_{i:02d}" for i in range(TAPS)])
    taps += rng.normal(0, 0.02, taps.shape)
    taps["lift"] = taps.filter(like="cp_").mean(axis=1) * np.cos(np.radians(study.heel_deg))
    taps["drag"] = 0.05 + taps.lift**2 / (np.pi * study.aspect) + 0.002 * study.headstay_sag_cm / study.cloth_modulus
    taps["heeling"] = taps.lift * study.luff_m * 0.41
    return taps


rng = np.random.default_rng(11)
design = parameter_study(SAILS, rng)
target = panel_code(design, rng)
design = (design - design.mean()) / design.std()
target = (target - target.mean()) / target.std()
design.describe().T.round(2)

# %%
inputs, outputs = torch.from_numpy(design.to_numpy()), torch.from_numpy(target.to_numpy())  # sick here
inputs = torch.from_numpy(design.to_numpy(np.float32))  # well
outputs = torch.from_numpy(target.to_numpy(np.float32))  # well
cut = int(0.9 * SAILS)
train_loader = DataLoader(TensorDataset(inputs[:cut], outputs[:cut]), batch_size=BATCH, shuffle=True, drop_last=True)
val_loader = DataLoader(TensorDataset(inputs[cut:], outputs[cut:]), batch_size=2 * BATCH)


# %%
class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.silu(self.up(self.norm(x))))


class SailSurrogate(L.LightningModule):
    def __init__(self, width=224, depth=4, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Linear(inputs.shape[1], width)
        self.blocks = nn.Sequential(*(Residual(width) for _ in range(depth)))
        self.taps, self.coefficients = nn.Linear(width, TAPS), nn.Linear(width, 3)
        self.scores = MetricCollection({"mae": MeanAbsoluteError(), "r2": R2Score()}, prefix="val_")

    def forward(self, x):
        x = self.blocks(self.stem(x))
        return torch.cat([self.taps(x), self.coefficients(x)], dim=1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        pressure, coefficient = F.mse_loss(out[:, :TAPS], y[:, :TAPS]), F.huber_loss(out[:, TAPS:], y[:, TAPS:])
        self.log_dict({"train_pressure": pressure, "train_coefficient": coefficient})
        return pressure + 0.5 * coefficient

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.scores.update(self(x), y)

    def on_validation_epoch_end(self):
        self.log_dict(self.scores.compute())
        self.scores.reset()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        steps = self.trainer.estimated_stepping_batches
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=self.hparams.lr, total_steps=steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Stopwatch(Callback):
    def on_train_start(self, trainer, module):
        self.began = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.began


# %%
precision = "64-true"  # sick here
precision = "32-true"  # well
stopwatch = Stopwatch()
trainer = L.Trainer(
    accelerator="cpu",
    precision=precision,
    max_epochs=EPOCHS,
    gradient_clip_val=1.0,
    logger=TensorBoardLogger("runs", name="sail_surrogate"),
    callbacks=[stopwatch, EarlyStopping("val_mae", patience=EPOCHS), ModelCheckpoint(monitor="val_mae", mode="min")],
    enable_progress_bar=False,
    num_sanity_val_steps=0,
    log_every_n_steps=10,
)
model = SailSurrogate()
trainer.fit(model, train_loader, val_loader)

# %%
print({name: round(value.item(), 4) for name, value in trainer.callback_metrics.items()})
print(f"{trainer.global_step * BATCH / stopwatch.seconds:.1f} sails/s")
