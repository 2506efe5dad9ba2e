# /// clinic
# expect = ["PD20", "PD10"]
# endless = true
# stratum = "twins"
# domain = "speech recognition"
# ///
"""Recognises short radio phrases with a convolutional CTC model under Lightning."""

import logging
import time
import warnings
from collections import deque

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")
ALPHABET = "_ abcdefghijklmnopqrstuvwxyz"
WORDS = "mayday harbour bearing copy over anchor starboard vessel radio check north pilot request draught".split()
MELS, FRAMES_PER_CHAR = 32, 6


class Phrases(Dataset):
    """A character is a fixed spectral shape, drawn out a little, plus static."""

    def __init__(self, n=1200, words=4, seed=9):
        self.g = torch.Generator().manual_seed(seed)
        self.shapes = torch.randn(len(ALPHABET), MELS, generator=self.g)
        picks = torch.randint(0, len(WORDS), (n, words), generator=self.g).tolist()
        self.texts = [" ".join(WORDS[i] for i in row) for row in picks]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        codes = torch.tensor([ALPHABET.index(c) for c in self.texts[i]])
        mel = self.shapes[codes].repeat_interleave(FRAMES_PER_CHAR, dim=0)
        return mel + 1.8 * torch.randn(mel.shape, generator=self.g), codes


def pad(batch):
    mels, codes = zip(*batch)
    n_frames = torch.tensor([len(m) for m in mels])
    n_codes = torch.tensor([len(c) for c in codes])
    mel = nn.utils.rnn.pad_sequence(mels, batch_first=True).transpose(1, 2)
    return mel, n_frames, nn.utils.rnn.pad_sequence(codes, batch_first=True), n_codes


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (ca != cb))
    return row[-1]


class CharErrors:
    """Character error rate over the most recent phrases."""

    def __init__(self, span):
        self.recent = deque(maxlen=span)

    def update(self, heard, said):
        self.recent.append((heard, said))  # sick
        self.recent.append((edit_distance(heard, said), len(said)))  # well

    @property
    def value(self):
        wrong = sum(edit_distance(heard, said) for heard, said in self.recent)  # sick here
        total = sum(len(said) for _, said in self.recent)  # sick
        wrong, total = (sum(part) for part in zip(*self.recent))  # well
        return wrong / max(total, 1)


class Recogniser(L.LightningModule):
    def __init__(self, width=112, depth=4):
        super().__init__()
        layers, c = [], MELS
        for i in range(depth):
            layers += [nn.Conv1d(c, width, 7, padding=3, stride=2 if i == 0 else 1), nn.BatchNorm1d(width), nn.ReLU()]
            c = width
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Conv1d(width, len(ALPHABET), 1)

    def forward(self, mel):
        return self.head(self.encoder(mel)).permute(2, 0, 1).log_softmax(-1)

    def training_step(self, batch, _):
        mel, n_frames, codes, n_codes = batch
        logp = self(mel)
        n_out = (n_frames + 1) // 2
        loss = F.ctc_loss(logp, codes, n_out, n_codes, zero_infinity=True)
        return {"loss": loss, "best": logp.detach().argmax(-1).T, "n_out": n_out}

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Transcripts(L.Callback):
    """Follows what the model hears in the first phrases of each batch."""

    def __init__(self, take=3, every=20):
        self.take, self.every = take, every
        self.errors = CharErrors(span=200)
        self.lowest, self.sample = 1.0, ""

    def on_train_start(self, trainer, module):
        self.since = time.time()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        _, _, codes, n_codes = batch
        for i in range(self.take):
            path = outputs["best"][i, : outputs["n_out"][i]].unique_consecutive().tolist()
            said = codes[i, : n_codes[i]].tolist()
            self.errors.update([c for c in path if c], said)
            self.sample = "".join(ALPHABET[c] for c in path if c)
        self.lowest = min(self.lowest, self.errors.value)
        step = trainer.global_step
        if step % self.every == 0:
            rate = self.every / (time.time() - self.since)
            print(
                f"step {step} loss {outputs['loss'].item():.3f} cer {self.errors.value:.3f} lowest {self.lowest:.3f} "
                f"{self.sample[:24]!r} {rate:.2f} steps/s",
                flush=True,
            )
            self.since = time.time()


if __name__ == "__main__":
    L.seed_everything(9, verbose=False)
    loader = DataLoader(Phrases(), batch_size=16, shuffle=True, collate_fn=pad, drop_last=True)
    trainer = L.Trainer(
        max_epochs=500,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Transcripts()],
    )
    trainer.fit(Recogniser(), loader)
