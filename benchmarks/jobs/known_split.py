"""A training loop whose lines take known shares of the step, and which says what they took.

    python known_split.py SECONDS SCALE     SCALE 1 and 10: steps of about 3 and 30 ms on one thread

Every line between two clocks does one kind of work: Python alone, a C call that holds the GIL, an operator that lets
go of it, sleeping, a backward pass through a function in Python, the loss, the update. Printed as one JSON line: the
share of each line by its number, and the time of each step.
"""

import inspect
import json
import sys
import time

import torch
from torch import nn

SECONDS, SCALE = float(sys.argv[1]), int(sys.argv[2])


class Slow(torch.autograd.Function):
    """The identity, whose backward pass is work in Python."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad + 0 * spin(2_500 * SCALE)


def spin(count: int) -> int:
    total = 0
    for number in range(count):
        total += number & 7
    return total


def hold(words: list) -> int:
    return len(sorted(words))


def main() -> None:
    torch.manual_seed(0)
    side = int(96 * SCALE**0.5)
    model = nn.Linear(side, side)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(64, side)
    matrix = torch.randn(int(150 * SCALE ** (1 / 3)), int(150 * SCALE ** (1 / 3)))
    words = [(number * 7919) % 10_007 for number in range(1_700 * SCALE)]
    spent: dict[int, float] = {}
    steps = []
    clock = time.perf_counter

    def mark(line: int, began: float) -> float:
        now = clock()
        spent[line] = spent.get(line, 0.0) + now - began
        return now

    frame = inspect.currentframe()
    began_all = last = clock()
    while clock() - began_all < SECONDS:
        t = clock()
        spin(6_000 * SCALE)
        t = mark(frame.f_lineno - 1, t)
        hold(words)
        t = mark(frame.f_lineno - 1, t)
        [torch.mm(matrix, matrix) for _ in range(4)]
        t = mark(frame.f_lineno - 1, t)
        time.sleep(0.0004 * SCALE)
        t = mark(frame.f_lineno - 1, t)
        loss = Slow.apply(model(x)).square().mean()
        t = mark(frame.f_lineno - 1, t)
        loss.backward()
        t = mark(frame.f_lineno - 1, t)
        optimizer.step()
        t = mark(frame.f_lineno - 1, t)
        optimizer.zero_grad()
        steps.append(clock() - last)
        last = clock()
    total = sum(steps)
    shares = {line: round(seconds / total, 4) for line, seconds in spent.items()}
    print(json.dumps({"shares": shares, "step_us": [round(1e6 * s, 1) for s in steps]}), flush=True)


if __name__ == "__main__":
    main()
