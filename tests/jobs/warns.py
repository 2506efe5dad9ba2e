"""Warnings that are to name the line that called, from inside what the probe stands in for."""

import warnings

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def tell(words):
    for level in range(1, 8):
        warnings.warn(f"{words} {level}", stacklevel=level)


class Mixed:
    def __init__(self):
        tell("made")


class Model(torch.nn.Module, Mixed):
    call_super_init = True

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        tell("forward")
        return self.layer(x)


class Sequential(torch.utils.data.SequentialSampler):
    def __iter__(self):
        tell("iterated")
        return super().__iter__()


class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, grad):
        tell("backward")
        return grad.expand(8, 2)


def collate(items):
    tell("collated")
    return torch.stack([item[0] for item in items])


warnings.simplefilter("always")
torch.from_numpy(np.frombuffer(bytes(16), np.float32))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


data = TensorDataset(torch.randn(64, 4))
loader = DataLoader(data, batch_size=8, collate_fn=collate, sampler=Sequential(data))
for _ in range(2):
    for x in loader:
        loss = Loss.apply(model(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(lambda: tell("closed"))
