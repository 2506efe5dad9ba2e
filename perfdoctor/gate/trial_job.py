"""The job that the gate is tried on: a small network, made slower in known ways by its options.

Run as a program, in the interpreter of the user's jobs. It needs torch and nothing else.
"""

from __future__ import annotations

import argparse
import gc
import time
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--spin", type=float, default=0.0, help="share of a step to burn on top")
parser.add_argument("--layers", type=int, default=0, help="further layers of 128")
parser.add_argument("--items", type=int, default=0, help="calls of .item() per step on top")
parser.add_argument("--clones", type=int, default=0)
parser.add_argument("--casts", type=int, default=0, help="calls of .to(float64)")
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--steps", type=int, default=1_000_000)
parser.add_argument("--storm", type=int, default=0, help="objects per step that only the garbage collector frees")
parser.add_argument("--objects", type=int, default=0, help="objects that stay for the whole run")
parser.add_argument("--freeze", action="store_true", help="take those away from the garbage collector")
parser.add_argument("--data", help="file to train on")
parser.add_argument("--hollow", action="store_true", help="do nothing in a step")
parser.add_argument("--fail", type=int, default=-1, help="raise at this step")
given = parser.parse_args()

if given.data:
    Path(given.data).read_bytes()
torch.manual_seed(given.seed)
torch.set_num_threads(1)
hidden = [layer for _ in range(given.layers) for layer in (nn.Linear(128, 128), nn.ReLU())]
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 128), nn.ReLU(), *hidden, nn.Linear(128, 10))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4096, 256), torch.randint(10, (4096,)))
loader = DataLoader(data, batch_size=given.batch, num_workers=given.workers, drop_last=True)
ballast = [[number] for number in range(given.objects)]
if given.freeze:
    gc.freeze()
step = 0
typical_s = 0.0
while step < given.steps:
    for inputs, labels in loader:
        began = time.perf_counter()
        if step == given.fail:
            raise RuntimeError("told to fail")
        for _ in range(given.storm):
            knot: list = []
            knot.append(knot)
        if given.hollow:
            optimizer.step()
            step += 1
            continue
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), labels)
        for _ in range(given.items):
            loss.item()
        for _ in range(given.clones):
            inputs.clone()
        for _ in range(given.casts):
            inputs.to(torch.float64)
        loss.backward()
        optimizer.step()
        if given.spin:
            took = time.perf_counter() - began
            # What a step takes without being disturbed: the shortest of late, slowly forgotten.
            typical_s = took if not typical_s else min(took, typical_s * 1.001)
            until = time.perf_counter() + given.spin * typical_s
            while time.perf_counter() < until:
                pass
        step += 1
        if step == given.steps:
            break
