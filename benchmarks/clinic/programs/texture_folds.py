# /// clinic
# stratum = "decoys"
# resembles = ["PD20"]
# domain = "vision"
# ///
"""Texture classification with Accelerate: effective batch of 128 images in four parts, evaluation between."""

import gc
import time

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MICRO, PARTS = 32, 4


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(8, (n,), generator=g)
    grid = torch.arange(32.0)
    wave = torch.sin(grid[None] * (0.2 + 0.15 * kind[:, None]))
    x = wave[:, None, :, None] * wave[:, None, None, :] + 0.5 * torch.randn(n, 3, 32, 32, generator=g)
    return TensorDataset(x, kind)


def network(width=32):
    def conv(i, o, s):
        return nn.Sequential(nn.Conv2d(i, o, 3, stride=s, padding=1), nn.GroupNorm(8, o), nn.ReLU())

    return nn.Sequential(
        conv(3, width, 1),
        conv(width, 2 * width, 2),
        conv(2 * width, 2 * width, 1),
        conv(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 8),
    )


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = sum((model(x).argmax(1) == y).sum() for x, y in loader)
    model.train()
    gc.collect()
    return right.item() / len(loader.dataset)


def main(updates=64, warm=3):
    torch.manual_seed(0)
    acc = Accelerator(cpu=True, gradient_accumulation_steps=PARTS)
    train = DataLoader(textures(MICRO * PARTS * 8, 0), batch_size=MICRO, shuffle=True)
    valid = DataLoader(textures(64, 1), batch_size=64)
    model = network()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model, opt, train = acc.prepare(model, opt, train)
    done, start, spent = 0, None, 0.0
    while done < updates:
        for x, y in train:
            with acc.accumulate(model):
                loss = nn.functional.cross_entropy(model(x), y)
                acc.backward(loss)
                opt.step()
                opt.zero_grad()
            if acc.sync_gradients:
                done += 1
                if done == warm:
                    start = time.perf_counter()
                if done >= updates:
                    break
        if done % 32 == 0:
            pause = time.perf_counter()
            print(f"update {done} loss {loss.item():.3f} right {evaluate(model, valid):.2f}")
            spent += time.perf_counter() - pause
    took = time.perf_counter() - start - spent
    print(f"{(updates - warm) * MICRO * PARTS / took:.1f} images/s")


if __name__ == "__main__":
    main()
