"""A job whose parameters, gradients, optimizer state and activations can be told by arithmetic.

`--batch N`; `--steps N`; `--zeros` keeps gradients from step to step; `--hoard` keeps tensors and objects of each step.
"""

import argparse

import torch
from torch import nn

WIDTH = 512
DEPTH = 4


class Note:
    def __init__(self, step: int) -> None:
        self.step = step
        self.words = ["kept"] * 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--zeros", action="store_true")
    parser.add_argument("--hoard", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(*(layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs = torch.randn(options.batch, WIDTH)
    kept, notes = [], []
    for step in range(options.steps):
        optimizer.zero_grad(set_to_none=not options.zeros)
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        if options.hoard:
            kept.append(inputs[:256].clone())
            notes += [Note(step) for _ in range(50)]
    print(f"{loss.item():.9f} {sum(one.sum().item() for one in kept):.6f} {len(notes)}")


if __name__ == "__main__":
    main()
