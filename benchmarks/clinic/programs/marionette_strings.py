# /// clinic
# expect = ["PD10.repeated-work"]
# stratum = "twins"
# domain = "inverse kinematics of a string marionette"
# ///
#!/usr/bin/env python
"""Inverse kinematics of a string puppet.

A marionette hangs from a cross bar by twelve strings.  Given the string lengths and
the tilt of the bar we recover the nine joint angles of the puppet.  The network
settles a hidden state by repeating one tied layer, whose matrix is kept orthogonal
so that the iteration neither dies out nor explodes.
"""

import argparse
import logging
import math
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize  # well
from torch.nn.utils.parametrizations import orthogonal

log = logging.getLogger("marionette")

JOINTS, STRINGS, TILT = 9, 12, 2


def hang(angles, tilt):
    """String lengths for joint angles [n, 9] and bar tilt [n, 2]: planar limb chains."""
    bar = torch.linspace(-1.0, 1.0, STRINGS)
    heights = 2.0 + bar * torch.sin(tilt[:, :1]) + 0.3 * torch.cos(2 * bar) * torch.sin(tilt[:, 1:])
    points = []
    for limb, root in enumerate((-0.4, 0.0, 0.4)):
        x = torch.full_like(angles[:, 0], root)
        y = torch.zeros_like(x)
        points.append((x, y))
        heading = torch.full_like(x, -math.pi / 2)
        for joint in range(3):
            heading = heading + angles[:, 3 * limb + joint]
            x = x + 0.45 * torch.cos(heading)
            y = y + 0.45 * torch.sin(heading)
            points.append((x, y))
    px = torch.stack([p[0] for p in points], 1)
    py = torch.stack([p[1] for p in points], 1)
    return torch.hypot(px - bar, py - heights)


def make_puppets(n, seed):
    gen = torch.Generator().manual_seed(seed)
    angles = 0.9 * torch.rand(n, JOINTS, generator=gen) - 0.1
    tilt = 0.3 * torch.randn(n, TILT, generator=gen)
    lengths = hang(angles, tilt) + 0.002 * torch.randn(n, STRINGS, generator=gen)
    lengths = (lengths - lengths.mean(0)) / lengths.std(0)
    return torch.cat([lengths, tilt], 1), (angles - angles.mean(0)) / angles.std(0)


class SettlingNet(nn.Module):
    def __init__(self, width, rounds):
        super().__init__()
        self.rounds = rounds
        self.drive = nn.Sequential(nn.Linear(STRINGS + TILT, width), nn.GELU(), nn.Linear(width, width))
        self.read = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, JOINTS))
        self.tied = tied_layer(width)

    def forward(self, strings):
        push = self.drive(strings)
        state = torch.tanh(push)
        for _ in range(self.rounds):  # sick
            state = torch.tanh(self.tied(state) + push)  # sick here
        with parametrize.cached():  # well
            for _ in range(self.rounds):  # well
                state = torch.tanh(self.tied(state) + push)  # well
        return self.read(state)


def tied_layer(width):
    return orthogonal(nn.Linear(width, width, bias=False))  # here


def minibatches(inputs, targets, size):
    for rows in torch.randperm(len(inputs)).split(size):
        yield inputs[rows], targets[rows]


def angle_error(model, inputs, targets):
    model.eval()
    with torch.inference_mode():
        errors = [(model(x) - y).abs().mean() for x, y in zip(inputs.split(2048), targets.split(2048))]
    model.train()
    return torch.stack(errors).mean().item()


def train(model, data, held_out, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3)
    steps = args.epochs * math.ceil(len(data[0]) / args.batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=steps, pct_start=0.15)
    for epoch in range(1, args.epochs + 1):
        running = torch.zeros(())
        for strings, angles in minibatches(*data, args.batch):
            loss = F.mse_loss(model(strings), angles)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            running += loss.detach()
        if epoch % 5 == 0:
            log.info(
                "epoch %d: loss %.4f, held-out angle error %.4f",
                epoch,
                running.item() * args.batch / len(data[0]),
                angle_error(model, *held_out),
            )


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=22)
    parser.add_argument("--puppets", type=int, default=81920)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    return parser.parse_args()


def main():
    args = parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.manual_seed(0)
    data = make_puppets(args.puppets, seed=1)
    held_out = make_puppets(4096, seed=2)
    model = SettlingNet(args.width, args.rounds)
    log.info("%d weights", sum(p.numel() for p in model.parameters()))

    began = time.perf_counter()
    train(model, data, held_out, args)
    print(f"total training time: {time.perf_counter() - began:.2f} s")


if __name__ == "__main__":
    main()
