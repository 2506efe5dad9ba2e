# /// clinic
# expect = ["PD05.padded-batches"]
# stratum = "twins"
# domain = "graphs and molecules"
# ///
"""Predict a quantum-chemical property of small organic molecules with a distance-biased graph transformer.

The molecules are synthetic conformers: self-avoiding chains with branches, labelled by a pairwise toy Hamiltonian.
"""

import argparse
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


ELEMENTS = ["H", "C", "N", "O", "F", "S"]
PAD = 0


def grow_molecule(rng, n_atoms):
    """Attach each new atom to a random recent one, at a bond length of about 1.4 A."""
    parent = np.maximum(0, np.arange(n_atoms) - 1 - rng.integers(0, 3, n_atoms))
    step = rng.normal(size=(n_atoms, 3))
    step *= 1.4 / np.linalg.norm(step, axis=1, keepdims=True)
    pos = np.zeros((n_atoms, 3))
    for i in range(1, n_atoms):
        pos[i] = pos[parent[i]] + step[i]
    z = rng.choice(len(ELEMENTS), n_atoms, p=[0.35, 0.42, 0.08, 0.1, 0.03, 0.02]) + 1
    return z.astype(np.int64), pos.astype(np.float32)


class ConformerDataset(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        sizes = np.clip(rng.lognormal(math.log(19), 0.36, n), 6, 80).astype(int)
        charge = np.array([0.0, 0.3, 0.1, -0.4, -0.5, -0.2, 0.2])
        self.samples = []
        for size in sizes:
            z, pos = grow_molecule(rng, size)
            dist = np.linalg.norm(pos[:, None] - pos[None], axis=-1) + np.eye(size)
            q = charge[z]
            energy = (np.outer(q, q) * np.exp(-dist / 3) / dist).sum() - q @ q
            self.samples.append((torch.from_numpy(z), torch.from_numpy(pos), float(energy)))
        self.largest = int(sizes.max())
        self.targets = torch.tensor([s[2] for s in self.samples])

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


class Collator:
    """Pack molecules into dense arrays; atom type 0 marks the empty places."""

    def __init__(self, largest, mean, std):
        self.largest, self.mean, self.std = largest, mean, std

    def __call__(self, samples):
        width = self.largest  # sick here
        width = max(len(z) for z, _, _ in samples)  # well
        z = torch.full((len(samples), width), PAD, dtype=torch.long)
        pos = torch.zeros(len(samples), width, 3)
        for i, (zi, xi, _) in enumerate(samples):
            z[i, : len(zi)] = zi
            pos[i, : len(zi)] = xi
        y = torch.tensor([s[2] for s in samples])
        return z, pos, (y - self.mean) / self.std


class RadialBias(nn.Module):
    """Gaussians of the distance, mapped to one bias for each head."""

    def __init__(self, heads, n_gauss=16, cutoff=10.0):
        super().__init__()
        centers = torch.linspace(0, cutoff, n_gauss)
        self.register_buffer("centers", centers)
        self.gamma = 0.5 / (centers[1] - centers[0]).item() ** 2
        self.proj = nn.Linear(n_gauss, heads)

    def forward(self, pos):
        dist = (pos.unsqueeze(2) - pos.unsqueeze(1)).square().sum(-1).clamp_min(1e-8).sqrt()
        rbf = torch.exp(-self.gamma * (dist.unsqueeze(-1) - self.centers) ** 2)
        return self.proj(rbf).permute(0, 3, 1, 2)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ffn = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, x, bias):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(att.transpose(1, 2).reshape(b, n, d))
        return x + self.ffn(self.norm2(x))


class MoleculeTransformer(nn.Module):
    def __init__(self, dim=96, heads=4, depth=4):
        super().__init__()
        self.embed = nn.Embedding(len(ELEMENTS) + 1, dim, padding_idx=PAD)
        self.bias = RadialBias(heads)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, 1))

    def forward(self, z, pos):
        real = z != PAD
        bias = self.bias(pos).masked_fill(~real[:, None, None, :], -1e9)
        x = self.embed(z)
        for block in self.blocks:
            x = block(x, bias)
        per_atom = self.head(x).squeeze(-1)
        return (per_atom * real).sum(1)


@dataclass
class TrainConfig:
    epochs: int = 3
    batch_size: int = 32
    lr: float = 4e-4
    warmup: int = 40
    clip: float = 5.0
    log_every: int = 25


class Trainer:
    def __init__(self, model, train_set, valid_set, cfg):
        self.model, self.cfg = model, cfg
        mean, std = train_set.targets.mean().item(), train_set.targets.std().item()
        self.std = std
        largest = max(train_set.largest, valid_set.largest)
        collate = Collator(largest, mean, std)
        self.train_loader = DataLoader(train_set, cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
        self.valid_loader = DataLoader(valid_set, 2 * cfg.batch_size, collate_fn=collate)
        self.opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4, foreach=True)
        total = cfg.epochs * len(self.train_loader)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min((s + 1) / cfg.warmup, 0.5 * (1 + math.cos(math.pi * s / total)) + 0.02)
        )
        self.step, self.total, self.start = 0, total, time.perf_counter()

    def train_step(self, z, pos, y):
        loss = F.smooth_l1_loss(self.model(z, pos), y)
        self.opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg.clip)
        self.opt.step()
        self.sched.step()
        return loss

    @torch.inference_mode()
    def validate(self):
        self.model.eval()
        err = [(self.model(z, pos) - y).abs() for z, pos, y in self.valid_loader]
        self.model.train()
        return torch.cat(err).mean().item() * self.std

    def fit(self):
        for epoch in range(self.cfg.epochs):
            for batch in self.train_loader:
                loss = self.train_step(*batch)
                self.step += 1
                if self.step % self.cfg.log_every == 0:
                    took = time.perf_counter() - self.start
                    print(
                        f"epoch {epoch} step {self.step}/{self.total} loss {loss.item():.4f} "
                        f"{1000 * took / self.step:.0f} ms/step",
                        flush=True,
                    )
            print(f"epoch {epoch}: validation MAE {self.validate():.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-size", type=int, default=3840)
    args = parser.parse_args()
    torch.manual_seed(7)
    Trainer(MoleculeTransformer(), ConformerDataset(args.train_size, 1), ConformerDataset(128, 2), TrainConfig()).fit()
