# /// clinic
# expect = ["PD20"]
# stratum = "twins"
# domain = "polysomnography"
# sizes = {LAYERS = [11, 13], NIGHTS = [8, 10]}
# ///
"""Sleep stage scoring of single-channel EEG: a patch transformer over the 30 s epochs of whole nights."""

import logging
import tempfile
import time

import lightning as L
import torch
import torch.nn.functional as F
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.utilities import grad_norm
from torch import nn
from torch.utils.data import DataLoader, Dataset

LAYERS = 12
NIGHTS = 9
WIDTH = 64
HEADS = 4
EPOCHS_PER_NIGHT = 720
SAMPLES = 1600
PATCH = 50
STAGES = 5
BATCH = 32
STEPS = 230
WARMUP_STEPS = 10

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Nights(Dataset):
    """All scored epochs of all nights, in memory, fetched a batch at a time."""

    def __init__(self):
        g = torch.Generator().manual_seed(3)
        n = NIGHTS * EPOCHS_PER_NIGHT
        self.stage = torch.randint(0, STAGES, (n,), generator=g)
        hz = torch.tensor([10.0, 6.0, 13.0, 1.5, 4.5])[self.stage]
        t = torch.arange(SAMPLES) / 53.3
        phase = torch.rand(n, 1, generator=g) * 6.283
        self.eeg = torch.sin(6.283 * hz[:, None] * t + phase) + 0.8 * torch.randn(n, SAMPLES, generator=g)

    def __len__(self):
        return len(self.stage)

    def __getitems__(self, rows):
        rows = torch.tensor(rows)
        return self.eeg[rows], self.stage[rows]


class StageTransformer(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv1d(1, WIDTH, PATCH, stride=PATCH)
        self.position = nn.Parameter(torch.randn(1, SAMPLES // PATCH, WIDTH) * 0.02)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, STAGES))

    def forward(self, eeg):
        tokens = self.patches(eeg.unsqueeze(1)).transpose(1, 2) + self.position
        return self.head(self.encoder(tokens).mean(1))

    def training_step(self, batch, _):
        eeg, stage = batch
        loss = F.cross_entropy(self(eeg), stage)
        self.log("train/loss", loss)
        return loss

    def on_before_optimizer_step(self, optimizer):
        if self.global_step % 100 != 0:  # well
            return  # well
        # depth makes this one touchy, watch the layers in TensorBoard
        self.log_dict(grad_norm(self, norm_type=2))  # sick here
        self.log_dict(grad_norm(self, norm_type=2))  # well

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=6e-4, weight_decay=0.02, fused=True)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Throughput(L.Callback):
    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if trainer.global_step == WARMUP_STEPS:
            self.start = time.perf_counter()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step % 50 == 0:
            print(f"step {trainer.global_step}: loss {outputs['loss'].item():.3f}", flush=True)

    def on_train_end(self, trainer, module):
        elapsed = time.perf_counter() - self.start
        print(f"{(trainer.global_step - WARMUP_STEPS) * BATCH / elapsed:.1f} epochs/s")


def main():
    L.seed_everything(17, verbose=False)
    loader = DataLoader(Nights(), batch_size=BATCH, shuffle=True, drop_last=True, collate_fn=lambda batch: batch)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            max_steps=STEPS,
            max_epochs=-1,
            accelerator="cpu",
            logger=TensorBoardLogger(folder, name="stages"),
            log_every_n_steps=50,
            gradient_clip_val=1.0,
            callbacks=[Throughput()],
            enable_progress_bar=False,
            enable_checkpointing=False,
            enable_model_summary=False,
        )
        trainer.fit(StageTransformer(), loader)


if __name__ == "__main__":
    main()
