"""Keeps things: in a local, in an attribute, under a key, in a closure, bounded; and a tensor with all its graphs.

What it keeps them in speaks up when any of its own code runs.
"""

import collections
import io
import logging
import os

import facts
import loops
import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils.data import ConcatDataset, TensorDataset

STEPS = 140


class Loud:
    """An object whose own code nobody else has any business to run."""

    def __init__(self):
        self.features = []

    def __len__(self):
        print("len")
        return 0

    def __eq__(self, other):
        print("eq")
        return False

    __hash__ = None

    @property
    def size(self):
        print("property")
        return 0


class Slotted:
    __slots__ = ("pairs", "unset")

    def __init__(self):
        self.pairs = {}


class Keeper(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.arange(16.0).view(2, 8))

    def keep(self, x):
        self.queue = torch.cat(
            [self.queue, x],
        )


log = {"loss": [], "name": "run"}
recent = collections.deque(maxlen=8)
steady = list(range(50))


def counter():
    seen = set()

    def count(step):
        seen.add(step)

    return count


def watch(lengths):
    @torch.no_grad()
    def hook(module, given, result):
        lengths.append(len(result))

    return hook


def louder(function):
    def call(x):
        return function(x) + 1

    return call


def seldom(module, given):
    """For each epoch one more."""


def note(gradient):
    return None


def train():
    model, optimizer, criterion = loops.setup()
    watched, weight = torch.nn.Sequential(torch.nn.Linear(8, 2)), torch.nn.Parameter(torch.zeros(2))
    watched.register_forward_hook(watch(collections.deque(maxlen=4)))
    loud, slotted, count = Loud(), Slotted(), counter()
    graphs, average = [], torch.zeros(())
    x, y = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
    bank, returns, tally = torch.randn(2, 3), np.zeros(1), torch.tensor([5000])
    keeper, shout, pool = Keeper(), torch.relu, TensorDataset(x)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        average = average + loss  # the carried one
        graphs.append(loss)
        unrolled = y.float().requires_grad_()
        for _ in range(5 * step):
            unrolled = unrolled + 1
        log["loss"].append(loss.item())
        loud.features.append((step, x.clone()))
        slotted.pairs[step] = x[:1]
        recent.append(step)
        watched[0].register_forward_hook(watch(collections.deque(maxlen=4)))
        watched.register_forward_pre_hook(lambda module, given: None).remove()
        weight.register_hook(note)
        if step % 30 == 0:  # an epoch
            watched.register_forward_pre_hook(seldom)
            logging.getLogger("journal").addHandler(logging.FileHandler(os.devnull, delay=True))
        watched(x)
        bank = torch.cat([bank, x[:1, :3]])
        far = x[:, :3] @ bank.T
        returns = np.append(returns, far.sum().item())
        tally = torch.unique(torch.cat([tally, torch.tensor([step * 37 % 1009])]))
        keeper.keep(x)
        inputs = torch.zeros(4, step + 8)
        inputs = torch.nn.functional.pad(inputs, (0, 1))
        places = torch.arange(8 + step)
        places = places.to("cpu")
        count(step)
        shout = louder(shout)
        pool = ConcatDataset([pool, TensorDataset(x)])
        shout(x)
        if step % 20 == 19:
            torch.save({"model": model.state_dict(), "view": torch.zeros(1000)[:1], "loud": Slotted()}, io.BytesIO())
    save_file(model.state_dict(), "/dev/null")
    return model, average


facts.seed()
trained, total = train()
print(facts.digest(trained.parameters()), float(total), len(log["loss"]), locals().keys() >= {"log"})
