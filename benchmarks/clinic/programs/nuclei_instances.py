# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "instance segmentation, microscopy"
# ///
"""Trains a U-Net whose pixel embeddings separate touching cell nuclei."""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def synthetic_slides(count, size, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:size, 0:size]
    images = rng.normal(0.1, 0.05, (count, 1, size, size)).astype(np.float32)
    masks = np.zeros((count, size, size), dtype=np.int64)
    for i in range(count):
        for k in range(1, rng.integers(10, 17)):
            cx, cy = rng.uniform(6, size - 6, 2)
            a, b, phi = rng.uniform(5, 11), rng.uniform(5, 11), rng.uniform(0, np.pi)
            u = (xx - cx) * np.cos(phi) + (yy - cy) * np.sin(phi)
            v = (yy - cy) * np.cos(phi) - (xx - cx) * np.sin(phi)
            inside = (u / a) ** 2 + (v / b) ** 2 < 1
            masks[i][inside] = k
            images[i, 0][inside] += rng.uniform(0.4, 0.9)
        _, compact = np.unique(masks[i], return_inverse=True)
        masks[i] = compact.reshape(size, size)
    return torch.from_numpy(images), torch.from_numpy(masks)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width, embedding):
        super().__init__()
        self.enter = double_conv(1, width)
        self.down1 = double_conv(width, 2 * width)
        self.down2 = double_conv(2 * width, 4 * width)
        self.up1 = double_conv(6 * width, 2 * width)
        self.up0 = double_conv(3 * width, width)
        self.head = nn.Conv2d(width, embedding + 1, 1)

    def forward(self, x):
        e0 = self.enter(x)
        e1 = self.down1(F.max_pool2d(e0, 2))
        e2 = self.down2(F.max_pool2d(e1, 2))
        d1 = self.up1(torch.cat([e1, F.interpolate(e2, scale_factor=2.0)], dim=1))
        d0 = self.up0(torch.cat([e0, F.interpolate(d1, scale_factor=2.0)], dim=1))
        out = self.head(d0)
        return out[:, :-1], out[:, -1]


def pull_and_centres(emb, ids, count, margin):
    """Mean embedding of each nucleus and mean hinge distance of its pixels from it."""
    centres, pulls = [], []  # sick
    for k in range(1, count + 1):  # sick here
        pixels = emb[:, ids == k]  # sick
        centre = pixels.mean(dim=1)  # sick
        distance = (pixels - centre[:, None]).square().sum(dim=0).add(1e-6).sqrt()  # sick
        pulls.append(F.relu(distance - margin).square().mean())  # sick
        centres.append(centre)  # sick
    return torch.stack(centres), torch.stack(pulls).mean()  # sick
    area = torch.bincount(ids.flatten(), minlength=count + 1).to(emb.dtype)  # well
    flat = emb.flatten(1).t()  # well
    member = F.one_hot(ids.flatten(), count + 1).to(emb.dtype)  # well
    centres = (member.t() @ flat) / area[:, None].clamp(min=1)  # well
    distance = (flat - member @ centres).square().sum(dim=1).add(1e-6).sqrt()  # well
    pulls = (F.relu(distance - margin).square() @ member) / area.clamp(min=1)  # well
    return centres[1:], pulls[1:].mean()  # well


def discriminative_loss(embeddings, masks, counts, pull_margin=0.5, push_margin=1.5):
    total = embeddings.new_zeros(())
    for emb, ids, count in zip(embeddings, masks, counts):
        centres, pull = pull_and_centres(emb, ids, count, pull_margin)
        gap = (centres[:, None] - centres[None]).square().sum(dim=-1).add(1e-6).sqrt()
        push = F.relu(2 * push_margin - gap).square().triu(diagonal=1).sum() / max(1, count * (count - 1) / 2)
        total = total + pull + push + 1e-3 * centres.norm(dim=1).mean()
    return total / len(counts)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slides", type=int, default=160)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--embedding", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=6)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--lr", type=float, default=2e-3)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.manual_seed(0)
    images, masks = synthetic_slides(args.slides, args.size, seed=0)
    counts = masks.flatten(1).amax(dim=1).tolist()
    foreground = (masks > 0).float()
    model = UNet(args.width, args.embedding)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    order = torch.cat([torch.randperm(args.slides) for _ in range(args.steps * args.batch_size // args.slides + 1)])
    for step in range(args.steps):
        if step == 5:
            start = time.perf_counter()
        index = order[step * args.batch_size : (step + 1) * args.batch_size]
        embeddings, logits = model(images[index])
        loss = discriminative_loss(embeddings, masks[index], [counts[i] for i in index.tolist()])
        loss = loss + F.binary_cross_entropy_with_logits(logits, foreground[index])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}")
    print(f"{(args.steps - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
