# /// clinic
# expect = ["PD09.one-by-one"]
# stratum = "twins"
# domain = "sundial shadows"
# ///
"""Nowcasting of sundial shadows: a two-layer ConvLSTM that continues ten-minute frames of a dial plate."""

import math
import time

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZE = 32
FRAMES = 8
BATCH = 8
EPOCHS = 4


def render_dials(count, generator):
    """Draws shadow sequences: hour angle, gnomon height and passing clouds differ from day to day."""
    lat = torch.deg2rad(35 + 25 * torch.rand(count, 1, generator=generator))
    decl = torch.deg2rad(-23.4 + 46.8 * torch.rand(count, 1, generator=generator))
    start = -55 + 70 * torch.rand(count, 1, generator=generator)
    hour = torch.deg2rad(start + 2.5 * torch.arange(FRAMES + 1).float())
    alt = torch.asin(torch.sin(lat) * torch.sin(decl) + torch.cos(lat) * torch.cos(decl) * torch.cos(hour))
    azim = torch.atan2(torch.sin(hour), torch.cos(hour) * torch.sin(lat) - torch.tan(decl) * torch.cos(lat))
    height = 3 + 4 * torch.rand(count, 1, generator=generator)
    length = (height / torch.tan(alt.clamp(min=0.15))).clamp(max=SIZE * 0.45)

    axis = torch.arange(SIZE).float() - SIZE / 2 + 0.5
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    dx, dy = torch.sin(azim)[..., None, None], torch.cos(azim)[..., None, None]
    along = xx * dx + yy * dy
    across = (xx * dy - yy * dx).abs()
    edge = torch.sigmoid((length[..., None, None] - along) * 1.5) * torch.sigmoid(along * 2)
    shadow = edge * torch.exp(-(across**2) / 2.5)

    phase = 2 * math.pi * torch.rand(count, 1, generator=generator)
    haze = 0.75 + 0.25 * torch.sin(phase + 0.35 * torch.arange(FRAMES + 1).float())
    plate = 0.9 - 0.15 * (xx**2 + yy**2).sqrt() / SIZE
    frames = plate - 0.7 * haze[..., None, None] * shadow
    frames = frames + 0.02 * torch.randn(frames.shape, generator=generator)
    return frames.unsqueeze(2)


class DialCell(nn.Module):
    """One ConvLSTM cell."""

    def __init__(self, in_channels, hidden, kernel=3):
        super().__init__()
        self.hidden = hidden
        pad = kernel // 2
        self.x_in = nn.Conv2d(in_channels, hidden, kernel, padding=pad)  # sick
        self.h_in = nn.Conv2d(hidden, hidden, kernel, padding=pad, bias=False)  # sick
        self.x_forget = nn.Conv2d(in_channels, hidden, kernel, padding=pad)  # sick
        self.h_forget = nn.Conv2d(hidden, hidden, kernel, padding=pad, bias=False)  # sick
        self.x_cell = nn.Conv2d(in_channels, hidden, kernel, padding=pad)  # sick
        self.h_cell = nn.Conv2d(hidden, hidden, kernel, padding=pad, bias=False)  # sick
        self.x_out = nn.Conv2d(in_channels, hidden, kernel, padding=pad)  # sick
        self.h_out = nn.Conv2d(hidden, hidden, kernel, padding=pad, bias=False)  # sick
        self.gates = nn.Conv2d(in_channels + hidden, 4 * hidden, kernel, padding=pad)  # well

    def initial(self, x):
        shape = (x.shape[0], self.hidden, *x.shape[-2:])
        return x.new_zeros(shape), x.new_zeros(shape)

    def forward(self, x, state):
        h, c = state
        i = torch.sigmoid(self.x_in(x) + self.h_in(h))  # sick here
        f = torch.sigmoid(self.x_forget(x) + self.h_forget(h))  # sick here
        g = torch.tanh(self.x_cell(x) + self.h_cell(h))  # sick
        o = torch.sigmoid(self.x_out(x) + self.h_out(h))  # sick here
        i, f, g, o = self.gates(torch.cat([x, h], dim=1)).chunk(4, dim=1)  # well
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)  # well
        c = f * c + i * g
        return o * torch.tanh(c), c


class DialForecaster(L.LightningModule):
    def __init__(self, hidden=8, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv2d(1, hidden, 3, padding=1)
        self.lower = DialCell(hidden, hidden)
        self.upper = DialCell(hidden, hidden)
        self.head = nn.Conv2d(hidden, 1, 1)
        self.seen = 0
        self.began = self.ended = None

    def forward(self, frames):
        batch, steps = frames.shape[:2]
        features = F.silu(self.stem(frames.flatten(0, 1))).unflatten(0, (batch, steps))
        low, high = self.lower.initial(features[:, 0]), self.upper.initial(features[:, 0])
        hidden = []
        for x in features.unbind(1):
            low = self.lower(x, low)
            high = self.upper(low[0], high)
            hidden.append(high[0])
        maps = torch.stack(hidden, dim=1)
        change = self.head(maps.flatten(0, 1)).unflatten(0, (batch, steps))
        return frames + change

    def loss(self, frames):
        return F.l1_loss(self(frames[:, :-1]), frames[:, 1:])

    def on_train_start(self):
        self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        (frames,) = batch
        self.seen += len(frames)
        return self.loss(frames)

    def validation_step(self, batch, batch_idx):
        (frames,) = batch
        self.log("val_l1", self.loss(frames), batch_size=len(frames))

    def on_train_epoch_end(self):
        self.print(f"epoch {self.current_epoch} val_l1 {float(self.trainer.callback_metrics['val_l1']):.4f}")

    def on_train_end(self):
        self.ended = time.perf_counter()

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def main():
    L.seed_everything(11)
    generator = torch.Generator().manual_seed(11)
    train = DataLoader(TensorDataset(render_dials(480, generator)), batch_size=BATCH, shuffle=True, drop_last=True)
    val = DataLoader(TensorDataset(render_dials(48, generator)), batch_size=BATCH)
    model = DialForecaster()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, train, val)
    rate = model.seen / (model.ended - model.began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
