"""The smallest training that is still one, shared by the jobs here."""

import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network(width=16, depth=1):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, 2))


def setup():
    torch.manual_seed(0)
    model = network()
    return model, torch.optim.SGD(model.parameters(), lr=0.01), nn.CrossEntropyLoss()


def batches(count=256, width=16, **kwargs):
    kwargs.setdefault("batch_size", 4)
    return DataLoader(TensorDataset(torch.randn(count, width), torch.randint(2, (count,))), **kwargs)


def train(steps, loader=None, model=None, optimizer=None, criterion=None, sleep_s=0.0, at_step=lambda step: None):
    """`steps` steps over and over the same data; `at_step` is called before each."""
    if model is None:
        model, optimizer, criterion = setup()
    loader = loader if loader is not None else batches()
    done = 0
    while True:
        for inputs, labels in loader:
            if done == steps:
                return model
            at_step(done)
            optimizer.zero_grad()
            loss = criterion(model(inputs), labels)
            loss.backward()
            optimizer.step()
            done += 1
            if sleep_s:
                time.sleep(sleep_s)
