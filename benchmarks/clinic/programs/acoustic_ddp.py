# /// clinic
# expect = ["PD19.accumulation-without-no-sync"]
# stratum = "twins"
# domain = "distributed training on two ranks"
# launcher = ["torchrun", "--standalone", "--nproc-per-node", "2"]
# ///
"""Hybrid acoustic model (spliced filterbank frames -> senones), data parallel with Accelerate."""

import time
from contextlib import nullcontext

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


CONFIG = {
    "mel_bins": 40,
    "context": 5,
    "senones": 800,
    "hidden": 1280,
    "layers": 4,
    "dropout": 0.0,
    "utterances": 60,
    "frames_per_utterance": 300,
    "micro_batch": 96,
    "accumulate": 8,
    "micro_steps": 480,
    "lr": 5e-4,
    "warmup": 10,
}


def make_corpus(cfg, seed=3):
    """Frames drawn around one template per senone, smoothed in time, then spliced with their neighbours."""
    gen = torch.Generator().manual_seed(seed)
    templates = torch.randn(cfg["senones"], cfg["mel_bins"], generator=gen)
    width = 2 * cfg["context"] + 1
    features, labels = [], []
    for _ in range(cfg["utterances"]):
        durations = torch.randint(4, 12, (cfg["frames_per_utterance"],), generator=gen)
        states = torch.randint(0, cfg["senones"], (cfg["frames_per_utterance"],), generator=gen)
        states = states.repeat_interleave(durations)[: cfg["frames_per_utterance"]]
        frames = templates[states] + 0.6 * torch.randn(len(states), cfg["mel_bins"], generator=gen)
        padded = F.pad(frames.T[None], (cfg["context"], cfg["context"]), mode="replicate")[0].T
        features.append(padded.unfold(0, width, 1).flatten(1))
        labels.append(states)
    features = torch.cat(features)
    features = (features - features.mean(0)) / features.std(0)
    return TensorDataset(features, torch.cat(labels))


class AcousticModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        dim = cfg["mel_bins"] * (2 * cfg["context"] + 1)
        layers = []
        for _ in range(cfg["layers"]):
            layers += [
                nn.Linear(dim, cfg["hidden"]),
                nn.LayerNorm(cfg["hidden"]),
                nn.ReLU(),
                nn.Dropout(cfg["dropout"]),
            ]
            dim = cfg["hidden"]
        self.encoder = nn.Sequential(*layers)
        self.output = nn.Linear(dim, cfg["senones"])

    def forward(self, frames):
        return self.output(self.encoder(frames))


def endless(loader):
    while True:
        yield from loader


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True)
        set_seed(11)
        model = AcousticModel(cfg)
        optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.01, fused=True)
        loader = DataLoader(make_corpus(cfg), batch_size=cfg["micro_batch"], shuffle=True, drop_last=True)
        self.model, self.optimizer, self.loader = self.accelerator.prepare(model, optimizer, loader)
        self.updates = 0

    def set_lr(self):
        scale = min(1.0, (self.updates + 1) / self.cfg["warmup"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.cfg["lr"] * scale

    def micro_step(self, frames, senones, scale):
        loss = F.cross_entropy(self.model(frames), senones)  # here
        self.accelerator.backward(loss * scale)  # here
        return loss.detach()

    def window(self, last):
        """The context in which one micro-batch of an accumulation window is run."""
        return nullcontext()  # sick here
        return nullcontext() if last else self.accelerator.no_sync(self.model)  # well

    def apply_gradients(self):
        self.set_lr()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.updates += 1

    def fit(self):
        accumulate = self.cfg["accumulate"]
        batches = endless(self.loader)
        running = torch.zeros(())
        start = time.time()
        self.model.train()
        for step in range(1, self.cfg["micro_steps"] + 1):
            frames, senones = next(batches)
            last = step % accumulate == 0
            with self.window(last):  # here
                running += self.micro_step(frames, senones, 1.0 / accumulate)
            if last:
                self.apply_gradients()
            if step % 80 == 0:
                self.accelerator.print(
                    f"update {self.updates:3d}  loss {running.item() / 80:.4f}  "
                    f"{step * self.cfg['micro_batch'] * self.accelerator.num_processes / (time.time() - start):.0f} frames/s",
                    flush=True,
                )
                running.zero_()


def main():
    trainer = Trainer(CONFIG)
    trainer.fit()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
