# /// clinic
# expect = ["PD05.mergeable-accumulation", "PD05.batch-too-small"]
# stratum = "twins"
# domain = "violin varnish"
# ///
# Copyright: varnish group, instrument laboratory. Trained on simulated FTIR spectra of varnish cross-sections.
"""Which materials are in a violin's varnish, and from which workshop does it come?

An MLP-Mixer over patches of infrared spectra predicts the share of each material in the ground, the varnish
and the polish, and the workshop. Launch with `accelerate launch train.py` or `python train.py`.
"""

import argparse
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

MATERIALS = ["linseed", "walnut", "pine resin", "mastic", "shellac", "protein", "gypsum", "lake", "wax"]
WORKSHOPS = ["Cremona", "Brescia", "Venice", "Absam", "Mittenwald", "Mirecourt"]
PATCHES, CHANNELS = 36, 50


@dataclass
class TrainingConfig:
    dim: int = 256
    depth: int = 6
    batch_size: int = 2  # sick here
    gradient_accumulation_steps: int = 48  # sick
    batch_size: int = 16  # well
    gradient_accumulation_steps: int = 6  # well
    optimizer_steps: int = 28
    eval_batch_size: int = 32
    eval_steps: int = 14
    learning_rate: float = 1e-3
    weight_decay: float = 0.05
    warmup: int = 5
    seed: int = 1715


class VarnishSpectra(Dataset):
    """Mixtures of band spectra, one per spot; the workshop sets the prior of the recipe."""

    def __init__(self, spots, seed):
        bands = np.random.default_rng(7)
        rng = np.random.default_rng(seed)
        grid = np.linspace(4000, 400, PATCHES * CHANNELS, dtype=np.float32)
        pure = np.zeros((len(MATERIALS), grid.size), dtype=np.float32)
        for k in range(len(MATERIALS)):
            for center in bands.uniform(450, 3900, 14):
                width = bands.uniform(8, 70)
                pure[k] += bands.uniform(0.1, 1) * np.exp(-0.5 * ((grid - center) / width) ** 2)
        recipe = bands.gamma(0.6, 1.0, (len(WORKSHOPS), 3, len(MATERIALS)))
        self.workshop = rng.integers(0, len(WORKSHOPS), spots)
        share = recipe[self.workshop] * rng.gamma(2.0, 0.5, (spots, 3, len(MATERIALS))) + 1e-3
        self.share = (share / share.sum(-1, keepdims=True)).astype(np.float32)
        thickness = rng.dirichlet([2.0, 4.0, 1.5], spots).astype(np.float32)
        spectrum = np.einsum("sl,slm,mg->sg", thickness, self.share, pure, optimize=True)
        slope = rng.normal(0, 0.1, (spots, 1)).astype(np.float32) * np.linspace(-1, 1, grid.size, dtype=np.float32)
        noise = rng.standard_normal((spots, grid.size), dtype=np.float32)
        self.spectrum = (spectrum + slope + 0.02 * noise).astype(np.float32)

    def __len__(self):
        return len(self.spectrum)

    def __getitem__(self, i):
        return {
            "spectrum": torch.from_numpy(self.spectrum[i]),
            "share": torch.from_numpy(self.share[i]),
            "workshop": int(self.workshop[i]),
        }


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tokens = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channels = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class VarnishMixer(nn.Module):
    def __init__(self, dim, depth):
        super().__init__()
        self.patch = nn.Linear(CHANNELS, dim)
        self.where = nn.Parameter(torch.randn(PATCHES, dim) * 0.02)
        self.blocks = nn.Sequential(*(MixerBlock(PATCHES, dim) for _ in range(depth)))
        self.norm = nn.LayerNorm(dim)
        self.share = nn.Linear(dim, 3 * len(MATERIALS))
        self.workshop = nn.Linear(dim, len(WORKSHOPS))

    def forward(self, spectrum):
        x = self.patch(spectrum.unflatten(-1, (PATCHES, CHANNELS))) + self.where
        x = self.norm(self.blocks(x)).mean(1)
        return self.share(x).unflatten(-1, (3, len(MATERIALS))), self.workshop(x)


def criterion(outputs, batch):
    share, workshop = outputs
    material = F.kl_div(share.log_softmax(-1), batch["share"], reduction="none").sum((-1, -2)).mean()
    return material + 0.5 * F.cross_entropy(workshop, batch["workshop"])


@torch.no_grad()
def evaluate(accelerator, model, loader):
    model.eval()
    right, error, count = 0, 0.0, 0
    for batch in loader:
        share, workshop = accelerator.gather_for_metrics(model(batch["spectrum"]))
        right += (workshop.argmax(-1) == batch["workshop"]).sum().item()
        error += (share.softmax(-1) - batch["share"]).abs().sum(-1).mean(-1).sum().item()
        count += len(workshop)
    model.train()
    return right / count, error / count


def parse_args():
    config = TrainingConfig()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning_rate", type=float, default=config.learning_rate)
    parser.add_argument("--optimizer_steps", type=int, default=config.optimizer_steps)
    parser.add_argument("--seed", type=int, default=config.seed)
    for key, value in vars(parser.parse_args()).items():
        setattr(config, key, value)
    return config


def main():
    config = parse_args()
    set_seed(config.seed)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=config.gradient_accumulation_steps)

    per_step = config.batch_size * config.gradient_accumulation_steps
    train = VarnishSpectra(per_step * config.optimizer_steps, seed=1)
    test = VarnishSpectra(128, seed=2)
    model = VarnishMixer(config.dim, config.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / config.warmup))
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model,
        optimizer,
        DataLoader(train, batch_size=config.batch_size, shuffle=True, drop_last=True),
        DataLoader(test, batch_size=config.eval_batch_size),
        scheduler,
    )
    accelerator.print(f"{len(train)} spots, {per_step} per optimizer step")

    step, running = 0, torch.zeros(())
    start = time.perf_counter()
    for batch in train_loader:
        with accelerator.accumulate(model):
            loss = criterion(model(batch["spectrum"]), batch)
            accelerator.backward(loss)
            running += loss.detach() / config.gradient_accumulation_steps
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if not accelerator.sync_gradients:
            continue
        step += 1
        if step % 2 == 0:
            accelerator.print(f"step {step}: loss {running.item():.4f}")
        running.zero_()
        if step % config.eval_steps == 0:
            accuracy, error = evaluate(accelerator, model, test_loader)
            accelerator.print(f"  test: workshop {accuracy:.3f}, share error {error:.3f}")
    accelerator.wait_for_everyone()
    rate = step * per_step / (time.perf_counter() - start)
    accelerator.save(accelerator.get_state_dict(model), "varnish.pt")
    accelerator.print(f"{rate:.1f} spots/s")


if __name__ == "__main__":
    main()
