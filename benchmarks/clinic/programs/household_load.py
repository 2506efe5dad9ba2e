# /// clinic
# expect = ["PD04.explicit-collect"]
# stratum = "twins"
# domain = "federated forecasting of household electricity load (functions, accelerate)"
# ///
"""Federated forecasting of household electricity load.

Every home keeps its own meter readings. In each round the server picks some homes, each one trains the
shared model for a few mini-batches on its own windows, and the server averages what comes back, weighted
by the number of windows. The forecast is the next two hours (eight quarters of an hour) from the last day.
"""

from dataclasses import dataclass
from functools import partial
import copy
import math
import time

import torch
from torch import nn
from torch.nn import functional as F
from accelerate.utils import find_executable_batch_size, set_seed


HOMES = 60
ROUNDS = 9
HOMES_PER_ROUND = 12
LOCAL_STEPS = 16
BATCH = 160
HISTORY = 96
HORIZON = 8
LEARNING_RATE = 0.03


@dataclass
class Home:
    number: int
    windows: torch.Tensor
    targets: torch.Tensor

    @property
    def weight(self):
        return float(len(self.windows))


def make_home(number, generator):
    days = 12 + int(torch.randint(0, 10, (1,), generator=generator))
    quarters = torch.arange(days * 96, dtype=torch.float32)
    hour = quarters % 96 / 4
    morning = torch.exp(-((hour - 7.5) ** 2) / 3) * torch.rand(1, generator=generator)
    evening = torch.exp(-((hour - 19.0) ** 2) / 6) * (1 + torch.rand(1, generator=generator))
    fridge = 0.1 * torch.sin(2 * math.pi * quarters / (3 + 2 * torch.rand(1, generator=generator))).clamp(min=0)
    noise = 0.08 * torch.randn(len(quarters), generator=generator)
    load = morning + evening + fridge + noise + 0.2
    slices = load.unfold(0, HISTORY + HORIZON, 1)
    return Home(number, slices[:, :HISTORY].contiguous(), slices[:, HISTORY:].contiguous())


class LoadForecaster(nn.Module):
    def __init__(self, channels=48, width=320):
        super().__init__()
        self.local = nn.Conv1d(1, channels, kernel_size=8, stride=4)
        self.mix = nn.Conv1d(channels, channels, kernel_size=3, padding=1)
        steps = (HISTORY - 8) // 4 + 1
        self.hidden = nn.Linear(channels * steps, width)
        self.out = nn.Linear(width, HORIZON)

    def forward(self, window):
        x = F.relu(self.local(window.unsqueeze(1)))
        x = x + F.relu(self.mix(x))
        x = F.relu(self.hidden(x.flatten(1)))
        return self.out(x)


def fit_home(batch_size, server_model, home, generator):
    """Train a copy of the server's model on one home; returns its weights and the mean loss."""
    model = copy.deepcopy(server_model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    total = torch.zeros(())
    for _ in range(LOCAL_STEPS):
        rows = torch.randint(0, len(home.windows), (batch_size,), generator=generator)
        loss = F.mse_loss(model(home.windows[rows]), home.targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return [p.detach() for p in model.parameters()], total / LOCAL_STEPS


train_home = find_executable_batch_size(fit_home, starting_batch_size=BATCH)  # sick here
train_home = partial(fit_home, BATCH)  # well


@torch.no_grad()
def average_into(server_model, results):
    whole = sum(weight for weight, _ in results)
    for index, parameter in enumerate(server_model.parameters()):
        parameter.zero_()
        for weight, values in results:
            parameter.add_(values[index], alpha=weight / whole)


def federated_round(server_model, homes, generator):
    results, losses = [], []
    for number in torch.randperm(len(homes), generator=generator)[:HOMES_PER_ROUND].tolist():
        weights, loss = train_home(server_model, homes[number], generator)  # here
        results.append((homes[number].weight, weights))
        losses.append(loss)
    average_into(server_model, results)
    return torch.stack(losses).mean().item()


@torch.no_grad()
def error_on(server_model, homes):
    errors = [F.l1_loss(server_model(h.windows[-200:]), h.targets[-200:]) for h in homes]
    return torch.stack(errors).mean().item()


def main():
    set_seed(7)
    generator = torch.Generator().manual_seed(7)
    homes = [make_home(number, generator) for number in range(HOMES)]
    train, held_out = homes[:-6], homes[-6:]
    model = LoadForecaster()
    print(f"{len(train)} homes, {sum(p.numel() for p in model.parameters())} parameters")
    start = time.time()
    for round_number in range(1, ROUNDS + 1):
        loss = federated_round(model, train, generator)
        print(f"round {round_number:3d}  loss {loss:.4f}  {time.time() - start:.1f} s", flush=True)
    print(f"mean absolute error in new homes: {error_on(model, held_out):.4f} kW")


if __name__ == "__main__":
    main()
