# /// clinic
# expect = ["PD17.gradients-without-optimizer"]
# stratum = "twins"
# domain = "generative models"
# ///
"""A convolutional VAE with a feature-matching reconstruction term, trained on procedurally drawn sprites with Lightning."""

import logging
import sys
import time
import warnings

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


SIZE = 48
BATCH = 16
STEPS = 260
LATENT = 32


def draw_sprites(n, seed):
    """Soft discs, bars and rings in random colours on a shaded background."""
    g = torch.Generator().manual_seed(seed)
    axis = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    images = torch.empty(n, 3, SIZE, SIZE)
    for i in range(n):
        r = torch.rand(14, generator=g)
        canvas = 0.2 + 0.3 * r[:3, None, None] + 0.1 * (xx * (r[3] - 0.5) + yy * (r[4] - 0.5))
        cx, cy, size = r[5] - 0.5, r[6] - 0.5, 0.2 + 0.3 * r[7]
        dist = ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()
        kind = int(r[8] * 3)
        if kind == 0:
            level = size - dist
        elif kind == 1:
            level = 0.1 - (dist - size).abs()
        else:
            angle = r[9] * 3.1416
            level = 0.12 - ((xx - cx) * torch.sin(angle) - (yy - cy) * torch.cos(angle)).abs()
        mask = torch.sigmoid(30 * level)
        images[i] = canvas * (1 - mask) + r[10:13, None, None] * mask
    return images.clamp(0, 1)


class FeaturePyramid(nn.Module):
    """A VGG-like stack with random orthogonal weights; returns the activations after each stage."""

    def __init__(self, widths=(24, 48, 64)):
        super().__init__()
        stages, c_in = [], 3
        for i, width in enumerate(widths):
            layers = [nn.AvgPool2d(2)] if i else []
            layers += [
                nn.Conv2d(c_in, width, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1),
                nn.ReLU(),
            ]
            stages.append(nn.Sequential(*layers))
            c_in = width
        self.stages = nn.ModuleList(stages)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.orthogonal_(m.weight, gain=1.6)
                nn.init.zeros_(m.bias)
        self.register_buffer("mean", torch.tensor([0.45, 0.45, 0.45]).view(1, 3, 1, 1))

    def forward(self, x):
        feats, x = [], (x - self.mean) / 0.25
        for stage in self.stages:
            x = stage(x)
            feats.append(x)
        return feats


class PerceptualLoss(nn.Module):
    def __init__(self, weights=(1.0, 0.7, 0.5)):
        super().__init__()
        self.weights = weights
        self.features = FeaturePyramid().eval()  # sick here
        self.features = FeaturePyramid().eval().requires_grad_(False)  # well

    def forward(self, recon, target):
        loss = 0.0
        for w, a, b in zip(self.weights, self.features(recon), self.features(target)):
            loss = loss + w * F.l1_loss(a, b)
        return loss


def down(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 4, stride=2, padding=1), nn.GroupNorm(8, o), nn.SiLU())


def up(i, o):
    return nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())


class SpriteVAE(L.LightningModule):
    def __init__(self, beta=0.05, lr=1e-3):
        super().__init__()
        self.beta, self.lr = beta, lr
        side = SIZE // 8
        self.encoder = nn.Sequential(
            down(3, 16), down(16, 32), down(32, 64), nn.Flatten(), nn.Linear(64 * side * side, 2 * LATENT)
        )
        self.decoder = nn.Sequential(
            nn.Linear(LATENT, 64 * side * side),
            nn.Unflatten(1, (64, side, side)),
            up(64, 32),
            up(32, 16),
            up(16, 16),
            nn.Conv2d(16, 3, 3, padding=1),
            nn.Sigmoid(),
        )
        self.perceptual = PerceptualLoss()

    def forward(self, x):
        mean, log_var = self.encoder(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(z), mean, log_var

    def training_step(self, batch, batch_idx):
        (x,) = batch
        recon, mean, log_var = self(x)
        pixel = F.mse_loss(recon, x)
        feature = self.perceptual(recon, x)
        kl = 0.5 * (mean**2 + log_var.exp() - 1 - log_var).sum(1).mean() / LATENT
        return {"loss": pixel + 0.5 * feature + self.beta * kl, "pixel": pixel.detach(), "kl": kl.detach()}

    def validation_step(self, batch, batch_idx):
        (x,) = batch
        recon, _, _ = self(x)
        self.log("val_mse", F.mse_loss(recon, x), on_epoch=True, logger=False)

    def configure_optimizers(self):
        ours = [*self.encoder.parameters(), *self.decoder.parameters()]
        opt = torch.optim.AdamW(ours, lr=self.lr, betas=(0.9, 0.98), foreach=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.lr, total_steps=STEPS + 1)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Progress(L.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        step = trainer.global_step
        if step % 20 == 0:
            took = time.perf_counter() - self.start
            print(
                f"step {step:4d}  loss {outputs['loss'].item():.4f}  pixel {outputs['pixel'].item():.4f}  "
                f"kl {outputs['kl'].item():.3f}  {1000 * took / step:.0f} ms/step",
                flush=True,
            )

    def on_validation_epoch_end(self, trainer, module):
        print(f"validation mse {trainer.callback_metrics['val_mse'].item():.5f}", flush=True)


def main():
    warnings.filterwarnings("ignore", module="lightning")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    L.seed_everything(11, verbose=False)
    train = DataLoader(TensorDataset(draw_sprites(1280, 0)), BATCH, shuffle=True, drop_last=True)
    valid = DataLoader(TensorDataset(draw_sprites(64, 1)), 32)
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=STEPS,
        max_epochs=-1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        gradient_clip_val=1.0,
        callbacks=[Progress()],
    )
    trainer.fit(SpriteVAE(), train, valid)


if __name__ == "__main__":
    sys.exit(main())
