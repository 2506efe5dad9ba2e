# /// clinic
# expect = ["PD10.masked-to-groups"]
# stratum = "twins"
# domain = "tuning forks"
# ///
"""Tells which tine of a tuning fork is filed off, and how far its pitch is off, from struck-fork recordings.

Sequence model: Swin Transformer blocks (Liu et al. 2021) over the frames of a recording, in one dimension.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

DEFECTS = ("sound", "left tine short", "right tine short", "loose stem", "cracked yoke")


def strike_forks(count, frames, frame, rng, rate=8000.0):
    """Decaying fundamental and clang tone; a defect splits the fundamental into two that beat."""
    t = np.arange(frames * frame, dtype=np.float32) / np.float32(rate)
    defect = rng.integers(0, len(DEFECTS), count)
    cents = rng.uniform(-40, 40, count).astype(np.float32)
    f0 = 440.0 * 2 ** (cents / 1200)
    split = np.select([defect == 1, defect == 2], [6.0, -6.0], 0.0) + rng.normal(0, 0.4, count)
    decay = np.where(defect == 3, 9.0, 2.0) * rng.uniform(0.8, 1.2, count)
    clang = np.where(defect == 4, 5.6, 6.27)
    phase = rng.uniform(0, 2 * np.pi, (count, 3))
    wave = np.zeros((count, len(t)), dtype=np.float32)
    for i in range(count):
        w = 2 * np.pi * f0[i]
        ring = np.sin(w * t + phase[i, 0]) + 0.7 * np.sin((w + 2 * np.pi * split[i]) * t + phase[i, 1])
        bell = 0.3 * np.sin(w * clang[i] * t + phase[i, 2]) * np.exp(-12 * t)
        wave[i] = ring * np.exp(-decay[i] * t) + bell
    wave += 0.05 * rng.standard_normal(wave.shape, dtype=np.float32)
    return (
        torch.from_numpy(wave).view(count, frames, frame),
        torch.from_numpy(defect),
        torch.from_numpy(cents / 40).float(),
    )


class WindowAttention(nn.Module):
    """Each frame attends to the frames of its window; the windows of every other block are shifted, cyclically."""

    def __init__(self, args, shift):
        super().__init__()
        self.heads, self.window, self.shift = args.heads, args.window, shift
        self.qkv = nn.Linear(args.d_model, 3 * args.d_model)
        self.out = nn.Linear(args.d_model, args.d_model)
        place = (torch.arange(args.frames) - shift) % args.frames // args.window  # sick
        self.register_buffer("mask", place[:, None] == place[None, :], persistent=False)  # sick here

    def forward(self, x):
        b, n, d = x.shape
        x = x.roll(-self.shift, 1).reshape(b * n // self.window, self.window, d)  # well
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)  # sick here
        y = F.scaled_dot_product_attention(q, k, v)  # well
        y = y.transpose(1, 2).reshape(b, n, d)
        y = y.roll(self.shift, 1)  # well
        return self.out(y)


class SwinBlock(nn.Module):
    def __init__(self, args, shift):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(args.d_model), nn.LayerNorm(args.d_model)
        self.attn = WindowAttention(args, shift)
        self.mlp = nn.Sequential(
            nn.Linear(args.d_model, args.mlp_ratio * args.d_model),
            nn.GELU(),
            nn.Linear(args.mlp_ratio * args.d_model, args.d_model),
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ForkNet(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embed = nn.Linear(args.frame, args.d_model)
        self.position = nn.Parameter(torch.zeros(1, args.frames, args.d_model))
        shifts = [0 if i % 2 == 0 else args.window // 2 for i in range(args.layers)]
        self.blocks = nn.Sequential(*[SwinBlock(args, shift) for shift in shifts])
        self.norm = nn.LayerNorm(args.d_model)
        self.defect = nn.Linear(args.d_model, len(DEFECTS))
        self.cents = nn.Linear(args.d_model, 1)
        nn.init.trunc_normal_(self.position, std=0.02)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.05)
            nn.init.zeros_(module.bias)

    def forward(self, frames):
        x = self.embed(frames) + self.position
        z = self.norm(self.blocks(x)).mean(1)
        return self.defect(z), self.cents(z).squeeze(-1)


class Trainer:
    def __init__(self, args):
        self.args = args
        rng = np.random.default_rng(args.seed)
        self.train_set = strike_forks(args.train_size, args.frames, args.frame, rng)
        self.test_set = strike_forks(args.test_size, args.frames, args.frame, rng)
        self.model = ForkNet(args)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.lr, weight_decay=0.05)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, args.lr, total_steps=args.steps)
        self.step, self.heard = 0, 0

    def batches(self):
        size = self.args.batch_size
        while True:
            order = torch.randperm(self.args.train_size)
            for start in range(0, self.args.train_size - size + 1, size):
                index = order[start : start + size]
                yield [column[index] for column in self.train_set]

    def train_step(self, frames, defect, cents):
        logits, off = self.model(frames)
        loss = F.cross_entropy(logits, defect) + self.args.pitch_weight * F.smooth_l1_loss(off, cents)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.step += 1
        self.heard += len(frames)
        return loss.detach()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        hits, error = 0, 0.0
        for frames, defect, cents in zip(*[column.split(24) for column in self.test_set]):
            logits, off = self.model(frames)
            hits += (logits.argmax(-1) == defect).sum().item()
            error += (off - cents).abs().sum().item() * 40
        self.model.train()
        return hits / self.args.test_size, error / self.args.test_size

    def fit(self):
        began = time.perf_counter()
        for batch in self.batches():
            loss = self.train_step(*batch)
            if self.step % self.args.eval_every == 0:
                accuracy, cents = self.evaluate()
                print(f"step {self.step:4d} loss {loss.item():.3f} accuracy {accuracy:.3f} pitch off by {cents:.1f}")
            if self.step >= self.args.steps:
                break
        return self.heard / (time.perf_counter() - began)


def parse_args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--frames", type=int, default=256)
    p.add_argument("--frame", type=int, default=20)
    p.add_argument("--window", type=int, default=16)
    p.add_argument("--d-model", type=int, default=96)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--mlp-ratio", type=int, default=4)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batch-size", type=int, default=6)
    p.add_argument("--steps", type=int, default=276)
    p.add_argument("--eval-every", type=int, default=46)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--pitch-weight", type=float, default=0.5)
    p.add_argument("--train-size", type=int, default=1200)
    p.add_argument("--test-size", type=int, default=96)
    p.add_argument("--seed", type=int, default=440)
    return p.parse_args()


if __name__ == "__main__":
    args = parse_args()
    torch.manual_seed(args.seed)
    rate = Trainer(args).fit()
    print(f"{rate:.1f} recordings/s")
