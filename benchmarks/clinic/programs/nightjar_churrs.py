# /// clinic
# expect = ["PD14.unchanging-content"]
# stratum = "twins"
# domain = "nightjar churring calls"
# ///
"""Nightjar churring: telling males apart by their churr, with field noise mixed in.

The churr alternates between a fast major and a slow minor phase; pulse rates and phase lengths differ between males.
Input are spectrogram cut-outs (bands x frames), outputs the male and the share of the minor phase.
"""

import argparse
import time

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

BANDS = 40
FRAMES = 96


def record_backdrop(nights: int, frames: int) -> torch.Tensor:
    """Recordings without nightjars: (nights, BANDS, frames), wind below and crickets above."""
    sound = torch.randn(nights, BANDS, frames)
    sound *= torch.linspace(1.4, 0.5, BANDS)[:, None]
    cricket = (torch.arange(frames) * 0.7).sin() > 0.6
    sound[::3, 30:34] += cricket * 1.5
    return sound


def record_churrs(n: int, males: int, seed: int):
    """Clean churrs with the male's number and the share of frames in the minor phase."""
    g = torch.Generator().manual_seed(seed)
    traits = torch.Generator().manual_seed(11)
    rate = 0.9 + 0.5 * torch.rand(males, generator=traits)
    slow = 0.70 + 0.15 * torch.rand(males, generator=traits)
    pitch = 14 + 10 * torch.rand(males, generator=traits)
    phase_len = 18 + 24 * torch.rand(males, generator=traits)

    who = torch.randint(males, (n,), generator=g)
    t = torch.arange(FRAMES).float() + 200 * torch.rand(n, 1, generator=g)
    minor = ((t / phase_len[who, None]) % 1.0) < 0.35
    pulse = rate[who, None] * torch.where(minor, slow[who, None], torch.ones(1))
    envelope = 0.6 + 0.4 * torch.sin(pulse.cumsum(1) * 2)
    band = torch.arange(BANDS).float()
    centre = pitch[who, None] - 1.5 * minor
    shape = torch.exp(-((band[None, :, None] - centre[:, None]) ** 2) / 8)
    level = 1.5 + torch.rand(n, 1, 1, generator=g)
    return shape * envelope[:, None] * level, who, minor.float().mean(1)


class Residual(nn.Module):
    def __init__(self, channels: int, dilation: int):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(8, channels)
        self.mix = nn.Conv1d(channels, channels, 1)

    def forward(self, x):
        return x + self.mix(F.gelu(self.norm(self.conv(x))))


class ChurrNet(L.LightningModule):
    def __init__(self, backdrop: torch.Tensor, males: int = 24, channels: int = 64, lr: float = 1e-3):
        super().__init__()
        self.save_hyperparameters(ignore=["backdrop"])
        self.register_buffer("backdrop", backdrop)  # sick here
        self.register_buffer("backdrop", backdrop, persistent=False)  # well
        self.stem = nn.Conv1d(BANDS, channels, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*(Residual(channels, 2**k) for k in range(4)))
        self.pulse = nn.GRU(channels, channels // 2, batch_first=True, bidirectional=True)
        self.attend = nn.Linear(channels, 1)
        self.male = nn.Linear(channels, males)
        self.share = nn.Linear(channels, 1)

    def with_noise(self, churr):
        n = len(churr)
        night = torch.randint(len(self.backdrop), (n,), device=self.device)
        start = torch.randint(self.backdrop.shape[-1] - FRAMES, (n, 1), device=self.device)
        frame = start + torch.arange(FRAMES, device=self.device)
        noise = self.backdrop[night[:, None, None], torch.arange(BANDS)[None, :, None], frame[:, None]]
        return churr + noise * (0.3 + 0.7 * torch.rand(n, 1, 1, device=self.device))

    def forward(self, sound):
        h = self.blocks(self.stem(sound))
        h, _ = self.pulse(h.transpose(1, 2))
        h = (h * self.attend(h).softmax(1)).sum(1)
        return self.male(h), self.share(h).squeeze(1).sigmoid()

    def losses(self, batch):
        churr, who, share = batch
        logits, guess = self(self.with_noise(churr))
        return F.cross_entropy(logits, who), F.mse_loss(guess, share), (logits.argmax(1) == who).float().mean()

    def training_step(self, batch, index):
        named, phase, _ = self.losses(batch)
        return named + 2 * phase

    def validation_step(self, batch, index):
        named, phase, right = self.losses(batch)
        self.log_dict({"val_loss": named + 2 * phase, "val_acc": right}, on_epoch=True, on_step=False)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, self.trainer.max_epochs)
        return [opt], [sched]


class FieldBook(Callback):
    """Counts churrs and reports the validation after every epoch."""

    def __init__(self):
        self.began, self.heard = None, 0

    def on_train_batch_start(self, trainer, module, batch, index):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        self.heard += len(batch[0])

    def on_validation_epoch_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"epoch {trainer.current_epoch:2d}: loss {m['val_loss']:.3f}, males right {m['val_acc']:.2f}")


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--males", type=int, default=24)
    p.add_argument("--churrs", type=int, default=512)
    p.add_argument("--nights", type=int, default=1500)
    p.add_argument("--night-frames", type=int, default=800)
    p.add_argument("--epochs", type=int, default=26)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--out", default="churr_runs")
    return p.parse_args()


def main():
    args = parse()
    L.seed_everything(5, verbose=False)
    train = TensorDataset(*record_churrs(args.churrs, args.males, seed=1))
    valid = TensorDataset(*record_churrs(160, args.males, seed=2))
    model = ChurrNet(record_backdrop(args.nights, args.night_frames), males=args.males)
    book = FieldBook()
    trainer = L.Trainer(
        max_epochs=args.epochs,
        accelerator="cpu",
        logger=False,
        callbacks=[book, ModelCheckpoint(dirpath=args.out, filename="{epoch}", save_top_k=1, every_n_epochs=1)],
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        model,
        DataLoader(train, args.batch, shuffle=True, drop_last=True),
        DataLoader(valid, 80),
    )
    took = time.perf_counter() - book.began
    print(f"{book.heard / took:.1f} churrs/s")


if __name__ == "__main__":
    main()
