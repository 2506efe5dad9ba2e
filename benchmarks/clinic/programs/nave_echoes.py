# /// clinic
# expect = ["PD10.ignored-scores"]
# stratum = "twins"
# domain = "cathedral acoustics"
# ///
"""Masked modelling of codec tokens of cathedral recordings.

Clapped, sung and organ excitations in simulated naves are coded into tokens (band energies, quantised with
random projections as in BEST-RQ); a transformer learns to fill in masked spans of the reverberation.
"""

import math
import time
from argparse import ArgumentParser

import lightning as L
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

IGNORE = -100


def simulate_nave(frames, bands, gen):
    """Log energies of a few excitations, each with the early echoes and the late tail of one building."""
    rt60 = 2.5 + 6.0 * torch.rand((), generator=gen)
    slope = torch.linspace(1.0, 0.35, bands)
    decay = torch.exp(-6.9 * torch.arange(frames).float()[:, None] / (rt60 * 40 * slope))
    energy = torch.full((frames, bands), 1e-4)
    for onset in torch.randint(0, frames - 8, (9,), generator=gen).tolist():
        color = torch.rand(bands, generator=gen) ** 2 + 0.02
        energy[onset:] += decay[: frames - onset] * color
        delay = int(torch.randint(2, 8, (), generator=gen))
        energy[onset + delay : onset + delay + 2] += 0.5 * color
    ripple = torch.cos(torch.arange(frames)[:, None] * torch.rand(bands, generator=gen) * math.pi)
    return energy.log() + 0.3 * ripple + 0.1 * torch.randn(frames, bands, generator=gen)


class RandomProjectionCodec:
    """Fixed random code book: a frame's token is the code nearest to its projection."""

    def __init__(self, bands, codes, dim, gen):
        self.projection = torch.randn(bands, dim, generator=gen) / math.sqrt(bands)
        self.book = F.normalize(torch.randn(codes, dim, generator=gen), dim=-1)

    def encode(self, x):
        z = F.normalize((x - x.mean(0)) @ self.projection, dim=-1)
        return (z @ self.book.T).argmax(-1)


class EchoTokens(Dataset):
    def __init__(self, count, frames, codes, seed, rate=0.15, span=6):
        gen = torch.Generator().manual_seed(seed)
        codec = RandomProjectionCodec(24, codes, 12, torch.Generator().manual_seed(0))
        self.tokens = torch.stack([codec.encode(simulate_nave(frames, 24, gen)) for _ in range(count)])
        self.mask_id, self.rate, self.span = codes, rate, span
        self.gen = gen

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        tokens = self.tokens[i].clone()
        masked = torch.zeros(len(tokens), dtype=torch.bool)
        while masked.float().mean() < self.rate:
            at = int(torch.randint(0, len(tokens) - self.span, (), generator=self.gen))
            masked[at : at + self.span] = True
        labels = tokens.masked_fill(~masked, IGNORE)
        return tokens.masked_fill(masked, self.mask_id), labels


class MaskedHead(nn.Module):
    def __init__(self, dim, codes):
        super().__init__()
        self.dense = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.decoder = nn.Linear(dim, codes)

    def forward(self, h):
        return self.decoder(self.norm(F.gelu(self.dense(h))))


class EchoModel(L.LightningModule):
    def __init__(self, codes=8192, frames=512, dim=192, depth=3, heads=6, lr=1e-3, steps=32):
        super().__init__()
        self.save_hyperparameters()
        self.embed = nn.Embedding(codes + 1, dim)
        self.position = nn.Parameter(torch.randn(1, frames, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = MaskedHead(dim, codes)

    def forward(self, tokens):
        return self.encoder(self.embed(tokens) + self.position)

    def loss(self, batch):
        tokens, labels = batch
        hidden = self(tokens)
        logits = self.head(hidden)  # sick here
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE)  # sick
        keep = labels != IGNORE  # well
        logits = self.head(hidden[keep])  # well
        loss = F.cross_entropy(logits, labels[keep])  # well
        return loss

    def training_step(self, batch, _):
        loss = self.loss(batch)
        self.log("train_loss", loss, prog_bar=False)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(batch), batch_size=len(batch[0]))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.05)
        steps = self.hparams.steps
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 5) * (1 - 0.9 * s / steps))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Tempo(L.Callback):
    """Counts recordings and prints progress."""

    def __init__(self):
        self.began, self.seen, self.rate = None, 0, 0.0

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.seen += len(batch[0])
        if trainer.global_step % 4 == 0:
            print(f"step {trainer.global_step}: loss {outputs['loss'].item():.3f}")

    def on_validation_epoch_end(self, trainer, module):
        if "val_loss" in trainer.callback_metrics:
            print(f"validation: loss {trainer.callback_metrics['val_loss'].item():.3f}")

    def on_train_end(self, trainer, module):
        self.rate = self.seen / (time.perf_counter() - self.began)


def main():
    parser = ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--frames", type=int, default=512)
    parser.add_argument("--codes", type=int, default=8192)
    args = parser.parse_args()

    L.seed_everything(1163, verbose=False)
    train = EchoTokens(args.batch_size * args.steps // 2, args.frames, args.codes, seed=1)
    val = EchoTokens(args.batch_size, args.frames, args.codes, seed=2)
    model = EchoModel(args.codes, args.frames, steps=args.steps)
    tempo = Tempo()
    trainer = L.Trainer(
        accelerator="cpu",
        max_steps=args.steps,
        gradient_clip_val=1.0,
        num_sanity_val_steps=0,
        callbacks=[tempo],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = [DataLoader(train, args.batch_size, shuffle=True, drop_last=True), DataLoader(val, args.batch_size)]
    trainer.fit(model, *loaders)
    print(f"{tempo.rate:.2f} recordings/s")


if __name__ == "__main__":
    main()
