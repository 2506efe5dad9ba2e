"""A job whose lines are asked for: `python places.py STYLE`.

The same file is also run as an installed package, where no file of the job's lies outside the folder of packages.
"""

import math
import sys
import threading

import torch
from torch import nn

STEPS = 40


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x):
        q, k, v = self.project(x).chunk(3, -1)  # calls project
        weights = q @ k.transpose(-2, -1) / math.sqrt(8)
        return weights.softmax(-1) @ v  # softmax


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = Mix()
        self.body = nn.Sequential(
            nn.Linear(8, 8),
            nn.LocalResponseNorm(3),  # makes norm
        )
        self.head = nn.Linear(  # makes head
            8,
            5000,
        )

    def forward(self, x):
        return self.head(self.body(self.mix(x)).mean(1))  # calls head


def train():
    torch.manual_seed(0)
    data, labels = torch.randn(64, 16, 8), torch.randint(5, (64,))
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())  # makes optimizer
    loss = None
    for _ in range(STEPS):
        rows = torch.randint(64, (4,))
        x = data[rows]  # batch
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels[rows])
        loss.backward()
        optimizer.step()
    print(loss.item())


def in_a_thread():
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()


if __name__ == "__main__":
    torch.set_num_threads(1)  # threads
    {"train": train, "thread": in_a_thread}[sys.argv[1]]()
