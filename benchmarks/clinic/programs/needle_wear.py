# /// clinic
# expect = ["PD03"]
# stratum = "twins"
# domain = "gramophone needle wear"
# ///
# %% [markdown]
# # How worn is the needle?
# Short takes from a test shellac, played with steel needles of known age. The network listens to a take and says
# how many sides the needle has played (0 = new, 1 = after 12 sides) and whether the groove was dusty.

# %%
import time

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from scipy.signal import resample_poly
from torch import nn
from torch.utils.data import DataLoader, Dataset

RECORDED_RATE = 22050
MODEL_RATE = 16000
SECONDS = 1.5
N_FFT = 1024
HOP = 256
MELS = 64

L.seed_everything(78, verbose=False)


# %%
def record_takes(count, seed):
    """Takes as the digitiser stores them: 16-bit samples, 22.05 kHz."""
    rng = np.random.default_rng(seed)
    samples = int(RECORDED_RATE * SECONDS)
    t = np.arange(samples) / RECORDED_RATE
    takes, wear, dusty = [], [], []
    for _ in range(count):
        w, d = rng.random(), rng.random() < 0.4
        pitch = rng.uniform(180.0, 700.0)
        wow = 1.0 + 0.004 * np.sin(2 * np.pi * 1.3 * t + rng.uniform(0, 6))
        phase = 2 * np.pi * np.cumsum(pitch * wow) / RECORDED_RATE
        tone = sum(np.sin(k * phase) * np.exp(-k * (0.2 + 0.5 * w)) for k in (1, 2, 3, 5))
        tone = np.tanh((1.0 + 2.0 * w) * tone)
        hiss = rng.standard_normal(samples, dtype=np.float32) * (0.05 + 0.12 * w)
        if d:
            clicks = rng.integers(0, samples, size=40)
            hiss[clicks] += rng.normal(0.0, 1.5, size=40)
        signal = 0.5 * tone + hiss
        takes.append((np.clip(signal / 3.0, -1, 1) * 32767).astype(np.int16))
        wear.append(w)
        dusty.append(float(d))
    return takes, torch.tensor(wear, dtype=torch.float32), torch.tensor(dusty)


def mel_filters():
    top = 2595.0 * np.log10(1.0 + MODEL_RATE / 2 / 700.0)
    edges = 700.0 * (10.0 ** (np.linspace(0.0, top, MELS + 2) / 2595.0) - 1.0)
    bins = np.linspace(0.0, MODEL_RATE / 2, N_FFT // 2 + 1)
    rising = (bins[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins[None]) / (edges[2:] - edges[1:-1])[:, None]
    return torch.tensor(np.maximum(0.0, np.minimum(rising, falling)), dtype=torch.float32)


FILTERS = mel_filters()
WINDOW = torch.hann_window(N_FFT)


def log_mel(take):
    """int16 take -> (MELS, frames), zero mean and unit variance."""
    audio = take.astype(np.float64) / 32768.0
    audio = resample_poly(audio, 320, 441)
    audio = torch.from_numpy(audio).float()
    power = torch.stft(audio, N_FFT, HOP, window=WINDOW, return_complex=True).abs().square()
    mel = torch.log(FILTERS @ power + 1e-6)
    return (mel - mel.mean()) / (mel.std() + 1e-5)


# %%
class NeedleTakes(Dataset):
    def __init__(self, count, seed, augment=False):
        self.takes, self.wear, self.dusty = record_takes(count, seed)
        self.augment = augment
        self.features = [log_mel(take) for take in self.takes]  # well

    def __len__(self):
        return len(self.takes)

    def __getitem__(self, index):
        mel = log_mel(self.takes[index])  # sick here
        mel = self.features[index].clone()  # well
        if self.augment:
            start = int(torch.randint(0, mel.shape[1] - 12, ()))
            mel[:, start : start + 12] = 0.0
            band = int(torch.randint(0, MELS - 8, ()))
            mel[band : band + 8] = 0.0
        return mel.unsqueeze(0), self.wear[index], self.dusty[index]


# %%
def block(inside, outside):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


class NeedleListener(L.LightningModule):
    def __init__(self, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(block(1, 16), block(16, 32), block(32, 64), block(64, 64))
        self.wear_head = nn.Linear(64, 1)
        self.dust_head = nn.Linear(64, 1)
        self.began = None
        self.seen = 0

    def forward(self, mel):
        pooled = self.body(mel).mean(dim=(2, 3))
        return torch.sigmoid(self.wear_head(pooled)).squeeze(1), self.dust_head(pooled).squeeze(1)

    def losses(self, batch):
        mel, wear, dusty = batch
        wear_hat, dust_logit = self(mel)
        return F.mse_loss(wear_hat, wear), F.binary_cross_entropy_with_logits(dust_logit, dusty)

    def on_train_batch_start(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        wear_loss, dust_loss = self.losses(batch)
        self.seen += len(batch[0])
        return 4.0 * wear_loss + dust_loss

    def validation_step(self, batch, batch_idx):
        wear_loss, dust_loss = self.losses(batch)
        self.log("val_wear", wear_loss.sqrt(), on_epoch=True, batch_size=len(batch[0]))
        self.log("val_dust", dust_loss, on_epoch=True, batch_size=len(batch[0]))

    def on_validation_epoch_end(self):
        got = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: wear error {got['val_wear']:.3f}, dust loss {got['val_dust']:.3f}")

    def on_train_end(self):
        self.rate = self.seen / (time.perf_counter() - self.began)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr=self.hparams.lr, total_steps=self.trainer.estimated_stepping_batches
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


# %%
train_set = NeedleTakes(640, seed=1, augment=True)
val_set = NeedleTakes(96, seed=2)
loader = dict(batch_size=16, num_workers=1, persistent_workers=True)
train_loader = DataLoader(train_set, shuffle=True, drop_last=True, **loader)
val_loader = DataLoader(val_set, **loader)

# %%
model = NeedleListener()
trainer = L.Trainer(
    accelerator="cpu",
    max_epochs=8,
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    enable_checkpointing=False,
    num_sanity_val_steps=0,
)
trainer.fit(model, train_loader, val_loader)
print(f"{model.rate:.1f} samples/s")
