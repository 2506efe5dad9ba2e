# /// clinic
# expect = ["PD13.pinned-process"]
# stratum = "twins"
# domain = "world model of a greenhouse learned beside a running simulator (RL, simulation)"
# ///
"""A world model of a greenhouse, learned while the simulator runs.

A process of its own simulates greenhouses with random control (heating, vents, lamps, watering, CO2) and
sends blocks of transitions. The learner keeps them in a buffer and fits an ensemble of networks which predict
the change of state and its uncertainty; a planner uses the ensemble later.
"""

import multiprocessing as mp
import os
import time

import numpy as np


CORES = {"learner": {0}, "simulator": {1}}  # here


def pin(role):
    os.sched_setaffinity(0, CORES[role])  # here


pin("learner")  # sick here

import torch  # noqa: E402
from torch import nn  # noqa: E402

STATE, ACTION = 14, 5
HOUSES = 64
BLOCK = 40
CAPACITY = 200_000
MEMBERS, WIDTH, BATCH = 5, 320, 384
UPDATES = 720
UPDATES_PER_BLOCK = 15


class Greenhouses:
    """Many small houses stepped together: a stable linear core with a few products between the quantities."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.core = np.eye(STATE) * 0.95 + self.random.normal(0, 0.02, (STATE, STATE))
        self.control = self.random.normal(0, 0.15, (ACTION, STATE))
        self.state = self.random.normal(0, 1, (HOUSES, STATE))
        self.action = np.zeros((HOUSES, ACTION))

    def step(self):
        self.action = 0.9 * self.action + 0.3 * self.random.normal(0, 1, self.action.shape)
        before = self.state
        evaporation = np.tanh(before[:, :1] * before[:, 1:2])
        growth = np.tanh(before[:, 2:3]) * np.maximum(self.action[:, 2:3], 0)
        after = np.tanh(before @ self.core + self.action @ self.control) + 0.1 * evaporation + 0.1 * growth
        after += self.random.normal(0, 0.01, after.shape)
        self.state = after
        return np.concatenate([before, self.action, after - before], axis=1).astype(np.float32)


def simulate(pipe, seed):
    pin("simulator")  # sick here
    houses = Greenhouses(seed)
    while pipe.recv():
        pipe.send(np.concatenate([houses.step() for _ in range(BLOCK)]))


class Buffer:
    def __init__(self, capacity):
        self.rows = torch.zeros(capacity, 2 * STATE + ACTION)
        self.size = self.next = 0

    def add(self, block):
        count = len(block)
        places = (torch.arange(count) + self.next) % len(self.rows)
        self.rows[places] = block
        self.next = (self.next + count) % len(self.rows)
        self.size = min(self.size + count, len(self.rows))

    def sample(self, members, batch):
        rows = self.rows[torch.randint(0, self.size, (members, batch))]
        return rows.split([STATE + ACTION, STATE], dim=-1)


class EnsembleLayer(nn.Module):
    def __init__(self, members, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(members, inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.zeros(members, 1, outputs))

    def forward(self, x):
        return torch.baddbmm(self.bias, x, self.weight)


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = [STATE + ACTION, WIDTH, WIDTH, WIDTH]
        layers = []
        for inputs, outputs in zip(sizes, sizes[1:]):
            layers += [EnsembleLayer(MEMBERS, inputs, outputs), nn.SiLU()]
        self.body = nn.Sequential(*layers)
        self.head = EnsembleLayer(MEMBERS, WIDTH, 2 * STATE)

    def loss(self, x, change):
        mean, log_variance = self.head(self.body(x)).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-8, 2)
        return ((mean - change) ** 2 * torch.exp(-log_variance) + log_variance).mean()


def learn(pipe):
    buffer = Buffer(CAPACITY)
    model = WorldModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    start, running = time.time(), torch.zeros(())
    pipe.send(True)
    for update in range(UPDATES):
        if update % UPDATES_PER_BLOCK == 0:
            buffer.add(torch.from_numpy(pipe.recv()))
            pipe.send(True)
        loss = model.loss(*buffer.sample(MEMBERS, BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running += loss.detach()
        if (update + 1) % 60 == 0:
            print(
                f"update {update + 1}  transitions {buffer.size}  loss {running.item() / 60:.3f}  "
                f"{time.time() - start:.1f} s",
                flush=True,
            )
            running.zero_()
    pipe.recv()
    pipe.send(False)


def main():
    context = mp.get_context("fork")
    ours, theirs = context.Pipe()
    simulator = context.Process(target=simulate, args=(theirs, 5), daemon=True)
    simulator.start()
    torch.manual_seed(5)
    learn(ours)
    simulator.join()


if __name__ == "__main__":
    main()
