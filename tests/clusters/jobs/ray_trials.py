"""Two trials of Ray Tune at a time, for longer than anybody looks."""

import time

import torch
from ray import tune
from torch import nn


def trial(config):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    while True:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(config["pause_s"])


if __name__ == "__main__":
    tune.Tuner(trial, param_space={"lr": 0.01, "pause_s": tune.grid_search([0.01, 0.1])}).fit()
    print("the driver went on")
