# /// clinic
# expect = ["PD01.onednn-off"]
# stratum = "twins"
# domain = "bobbin lace pricking patterns"
# ///
"""Denoising diffusion for bobbin lace prickings.

Learns to draw small torchon / rose / spider grounds as dot diagrams, conditioned on the ground, so that
damaged parchment prickings can be completed later on.
"""

import argparse
import copy
import random
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

GROUNDS = ("torchon", "rose", "spider", "honeycomb")


def make_reproducible(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.mkldnn.enabled = False  # sick here


def draw_prickings(n, size, rng):
    """Dot lattices with a random pitch, slant and pin position, seen through a faded-ink noise."""
    ground = rng.integers(0, len(GROUNDS), n)
    pitch = rng.uniform(5.0, 8.0, (n, 1, 1))
    slant = np.deg2rad(rng.normal(45.0, 3.0, (n, 1, 1)))
    shift = rng.uniform(0, 8, (2, n, 1, 1))
    yy, xx = np.mgrid[:size, :size].astype(float)
    u = (xx - shift[0]) * np.cos(slant) + (yy - shift[1]) * np.sin(slant)
    v = -(xx - shift[0]) * np.sin(slant) + (yy - shift[1]) * np.cos(slant)

    def pins(scale, off):
        a = 2 * np.pi / (pitch * scale)
        return np.exp(4.0 * (np.cos(a * u + off) + np.cos(a * v + off) - 2.0))

    base, half, wide = pins(1.0, 0.0), pins(1.0, np.pi), pins(2.0, np.pi / 2)
    g = ground[:, None, None]
    img = np.where(g == 0, base, np.where(g == 1, np.maximum(base, half), np.where(g == 2, base - wide, wide + half)))
    img = img + rng.normal(0, 0.04, img.shape)
    img = np.clip(img, -0.2, 1.2) * 2 - 1
    return torch.from_numpy(img[:, None].astype(np.float32)), torch.from_numpy(ground)


class TimeEmbedding(nn.Module):
    def __init__(self, dim, classes):
        super().__init__()
        self.register_buffer("freq", torch.exp(-np.log(1000.0) * torch.arange(dim // 2) / (dim // 2)))
        self.ground = nn.Embedding(classes, dim)
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t, ground):
        phase = t[:, None].float() * self.freq
        return self.net(torch.cat([phase.sin(), phase.cos()], dim=1) + self.ground(ground))


class Block(nn.Module):
    def __init__(self, cin, cout, emb):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, cin), nn.GroupNorm(4, cout)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.emb = nn.Linear(emb, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.emb(e)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class PrickingUNet(nn.Module):
    def __init__(self, base=24, emb=64):
        super().__init__()
        self.embed = TimeEmbedding(emb, len(GROUNDS))
        self.stem = nn.Conv2d(1, base, 3, padding=1)
        self.enc1 = Block(base, base, emb)
        self.down1 = nn.Conv2d(base, 2 * base, 3, stride=2, padding=1)
        self.enc2 = Block(2 * base, 2 * base, emb)
        self.down2 = nn.Conv2d(2 * base, 4 * base, 3, stride=2, padding=1)
        self.mid = Block(4 * base, 4 * base, emb)
        self.dec2 = Block(6 * base, 2 * base, emb)
        self.dec1 = Block(3 * base, base, emb)
        self.out = nn.Sequential(nn.GroupNorm(4, base), nn.SiLU(), nn.Conv2d(base, 1, 3, padding=1))

    def forward(self, x, t, ground):
        e = self.embed(t, ground)
        a = self.enc1(self.stem(x), e)
        b = self.enc2(self.down1(a), e)
        m = self.mid(self.down2(b), e)
        h = self.dec2(torch.cat([F.interpolate(m, scale_factor=2.0), b], dim=1), e)
        h = self.dec1(torch.cat([F.interpolate(h, scale_factor=2.0), a], dim=1), e)
        return self.out(h)


class Diffusion:
    def __init__(self, steps=200):
        self.steps = steps
        self.alpha_bar = torch.cumprod(1 - torch.linspace(1e-4, 0.03, steps), dim=0)

    def loss(self, model, x, ground):
        t = torch.randint(0, self.steps, (len(x),))
        ab = self.alpha_bar[t].view(-1, 1, 1, 1)
        noise = torch.randn_like(x)
        return F.mse_loss(model(ab.sqrt() * x + (1 - ab).sqrt() * noise, t, ground), noise)

    @torch.no_grad()
    def sample(self, model, ground, size, stride=20):
        x = torch.randn(len(ground), 1, size, size)
        for k in range(self.steps - 1, 0, -stride):
            eps = model(x, torch.full((len(ground),), k), ground)
            ab, prev = self.alpha_bar[k], self.alpha_bar[max(k - stride, 0)]
            clean = ((x - (1 - ab).sqrt() * eps) / ab.sqrt()).clamp(-1.5, 1.5)
            x = prev.sqrt() * clean + (1 - prev).sqrt() * eps
        return x


@torch.no_grad()
def evaluate(diffusion, model, images, grounds):
    model.eval()
    total = sum(diffusion.loss(model, x, g).item() * len(x) for x, g in zip(images.split(24), grounds.split(24)))
    model.train()
    return total / len(images)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--eval-every", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()

    make_reproducible(args.seed)
    images, grounds = draw_prickings(1000, args.size, np.random.default_rng(args.seed))
    train_x, train_g, val_x, val_g = images[:952], grounds[:952], images[952:], grounds[952:]

    model = PrickingUNet()
    ema = copy.deepcopy(model).requires_grad_(False)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    diffusion = Diffusion()

    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        pick = torch.randint(0, len(train_x), (args.batch_size,))
        loss = diffusion.loss(model, train_x[pick], train_g[pick])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 0.02)
        if step % args.eval_every == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}  val {evaluate(diffusion, ema, val_x, val_g):.4f}")
    drawn = diffusion.sample(ema, torch.arange(len(GROUNDS)), args.size)
    torch.save({"ema": ema.state_dict(), "drawn": drawn}, "pricking.pt")
    rate = args.steps * args.batch_size / (time.perf_counter() - began)
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
