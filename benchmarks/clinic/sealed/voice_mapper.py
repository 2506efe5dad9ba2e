# /// clinic
# expect = ["PD13"]
# stratum = "twins"
# domain = "audio"
# ///
"""Frame-wise voice conversion: stacked log spectra of one speaker mapped on those of another."""

import argparse
import time

import torch
from torch import nn


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--frames", type=int, default=512)
    p.add_argument("--width", type=int, default=1024)
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--warm", type=int, default=5)
    return p.parse_args()


def speakers(n, bins=129, context=5, seed=0):
    g = torch.Generator().manual_seed(seed)
    envelope = torch.randn(n, 12, generator=g)
    source = envelope @ torch.randn(12, bins * context, generator=g)
    goal = torch.tanh(envelope) @ torch.randn(12, bins, generator=g)
    return source / 3 + 0.1 * torch.randn(source.shape, generator=g), goal / 3


class Mapper(nn.Module):
    def __init__(self, i, w, o):
        super().__init__()
        self.first = nn.Linear(i, w)
        self.mid = nn.ModuleList(nn.Linear(w, w) for _ in range(3))
        self.last = nn.Linear(w, o)

    def forward(self, x):
        h = torch.relu(self.first(x))
        for layer in self.mid:
            h = h + torch.relu(layer(h))
        return self.last(h)


def fit(args):
    torch.set_num_threads(1)  # sick here
    torch.manual_seed(1)
    source, goal = speakers(16384)
    net = Mapper(source.shape[1], args.width, goal.shape[1])
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    half = args.frames // 2
    for step in range(args.steps):
        if step == args.warm:
            start = time.perf_counter()
        pick = torch.randint(len(source), (args.frames,))
        guess = net(source[pick])
        loss = (guess - goal[pick]).abs().mean() + 0.1 * (guess[:half].mean() - goal[pick[:half]].mean()).square()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 29:
            print(f"{step + 1}: {loss.item():.4f}")
    return (args.steps - args.warm) * args.frames / (time.perf_counter() - start)


if __name__ == "__main__":
    print(f"{fit(get_args()):.1f} frames/s")
