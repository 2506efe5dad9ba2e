# /// clinic
# expect = ["PD10.broadcast-then-sum"]
# stratum = "twins"
# domain = "whale re-identification"
# ///
"""Trains a fluke embedding with a batch-hard triplet loss so that photos of one whale lie together."""

import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

N_WHALES = 400
PER_BATCH = 64
PHOTOS = 4
EMBED = 128
MAX_STEPS = 240


class FlukePhotos(Dataset):
    """One item is a batch of PER_BATCH whales with PHOTOS photos each."""

    def __init__(self, whales, length, seed):
        self.length = length
        self.seed = seed
        self.whales = whales
        gen = torch.Generator().manual_seed(11)
        coarse = torch.randn(N_WHALES, 1, 8, 8, generator=gen)
        self.patterns = F.interpolate(coarse, size=(32, 32), mode="bilinear", align_corners=False)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(self.seed * 100003 + index)
        chosen = self.whales[torch.randperm(len(self.whales), generator=gen)[:PER_BATCH]]
        ids = chosen.repeat_interleave(PHOTOS)
        photos = self.patterns[ids]
        light = 0.7 + 0.6 * torch.rand(len(ids), 1, 1, 1, generator=gen)
        photos = photos * light + 0.5 * torch.randn(photos.shape, generator=gen)
        return photos, ids


def conv_block(c_in, c_out):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(c_out),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class FlukeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_block(1, 16), conv_block(16, 32), conv_block(32, 64))
        self.head = nn.Linear(64 * 4 * 4, EMBED)

    def forward(self, x):
        return F.normalize(self.head(self.body(x).flatten(1)), dim=1)


def pairwise_distances(emb):
    diff = emb.unsqueeze(1) - emb.unsqueeze(0)  # sick here
    squared = diff.pow(2).sum(dim=-1)  # sick here
    squared = 2.0 - 2.0 * emb @ emb.t()  # well
    return squared.clamp_min(1e-6).sqrt()


def batch_hard_triplet(emb, ids, margin=0.3):
    dist = pairwise_distances(emb)
    same = ids.unsqueeze(0) == ids.unsqueeze(1)
    eye = torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    hardest_pos = dist.masked_fill(~same | eye, 0.0).amax(dim=1)
    hardest_neg = dist.masked_fill(same, 10.0).amin(dim=1)
    return F.softplus((hardest_pos - hardest_neg + margin) * 5.0).mean()


class ReIdentification(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.net = FlukeNet()
        self.lr = lr

    def training_step(self, batch, batch_idx):
        photos, ids = batch
        loss = batch_hard_triplet(self.net(photos), ids)
        self.log("train_loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, batch_idx):
        photos, ids = batch
        dist = pairwise_distances(self.net(photos))
        dist.fill_diagonal_(10.0)
        nearest = dist.argmin(dim=1)
        self.log("val_recall1", (ids[nearest] == ids).float().mean(), batch_size=len(ids))

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-4)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=MAX_STEPS)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class StepRate(L.Callback):
    def __init__(self, warmup=5):
        self.warmup = warmup
        self.start = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == self.warmup:
            self.start = time.perf_counter()


def main():
    L.seed_everything(3)
    order = torch.randperm(N_WHALES)
    train_set = FlukePhotos(order[:320], length=80, seed=1)
    val_set = FlukePhotos(order[320:], length=4, seed=2)
    train_loader = DataLoader(train_set, batch_size=None, shuffle=True, num_workers=0)
    val_loader = DataLoader(val_set, batch_size=None, num_workers=0)

    clock = StepRate()
    trainer = L.Trainer(
        max_steps=MAX_STEPS,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[clock],
    )
    trainer.fit(ReIdentification(), train_loader, val_loader)
    seconds = time.perf_counter() - clock.start
    print({k: round(v.item(), 4) for k, v in trainer.callback_metrics.items()})
    rate = (trainer.global_step - clock.warmup) / seconds
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
