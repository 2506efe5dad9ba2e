"""Trains, and evaluates every eight steps on 32 samples at a time, scored in the way that the argument names."""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, CLASSES, TRAINED, EVALUATED = 32, 10, 60, 4


def hit(guess: torch.Tensor, label: torch.Tensor) -> bool:
    return bool(guess == label)  # helper


def in_loop(scores: torch.Tensor, labels: torch.Tensor) -> int:
    right = 0
    for score, label in zip(scores, labels, strict=True):  # loop
        guess = score.argmax()
        right += hit(guess, label)
    return right


def in_comprehension(scores: torch.Tensor, labels: torch.Tensor) -> int:
    return sum([hit(score.argmax(), label) for score, label in zip(scores, labels, strict=True)])  # comprehension


def in_generator(scores: torch.Tensor, labels: torch.Tensor) -> int:
    return sum(bool(score.argmax() == label) for score, label in zip(scores, labels, strict=True))  # generator


def class_by_class(scores: torch.Tensor, labels: torch.Tensor) -> int:
    right = 0
    for kind in range(CLASSES):
        right += int(((scores.argmax(1) == kind) & (labels == kind)).sum())
    return right


def whole(scores: torch.Tensor, labels: torch.Tensor) -> int:
    return int((scores.argmax(1) == labels).sum())


def main(way: str, batches: int = EVALUATED) -> None:
    torch.manual_seed(0)
    score = {
        "loop": in_loop,
        "comprehension": in_comprehension,
        "generator": in_generator,
        "classes": class_by_class,
        "whole": whole,
    }[way]
    data = TensorDataset(torch.randn(TRAINED * SAMPLES, 16), torch.randint(CLASSES, (TRAINED * SAMPLES,)))
    held_out = torch.utils.data.Subset(data, range(batches * SAMPLES))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    right = 0
    for step, (x, y) in enumerate(DataLoader(data, batch_size=SAMPLES)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step % 8 == 7:
            model.eval()
            with torch.no_grad():
                for x, y in DataLoader(held_out, batch_size=SAMPLES):
                    right += score(model(x), y)
            model.train()
    print(right)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
