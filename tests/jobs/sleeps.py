"""Steps of which every part sleeps for a known time, 30 ms in all."""

import gc
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

SLEEPS = {"input": 0.008, "forward": 0.004, "loss": 0.002, "backward": 0.006, "optimizer": 0.005, "other": 0.005}


class Data(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        time.sleep(SLEEPS["input"] / 2)
        return torch.ones(4)


class Pause(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.sleep(SLEEPS["forward"])
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(SLEEPS["backward"])
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return Pause.apply(self.layer(x))


class Plain(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure=None):
        time.sleep(SLEEPS["optimizer"])
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter -= 0.01 * parameter.grad


def main():
    model = Net()
    optimizer = Plain(model.parameters())
    for _ in range(3):
        for i, x in enumerate(DataLoader(Data(), batch_size=2)):
            loss = model(x).sum()
            time.sleep(SLEEPS["loss"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(SLEEPS["other"])
            if "save" in sys.argv and i % 10 == 9:
                torch.save(Slow(), os.devnull)
            if "collect" in sys.argv and i % 10 == 4:
                gc.collect()


class Slow:
    """Takes its time to be saved."""

    def __reduce__(self):
        time.sleep(0.02)
        return int, ()


main()
