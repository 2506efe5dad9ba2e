# /// clinic
# stratum = "decoys"
# domain = "control"
# smoke = true
# sizes = {WIDTH = [240, 280], PAUSE_MS = [15, 25]}
# ///
"""Fits a controller for a crane and reports each update to the plant, which takes a limited number a second."""

import queue
import threading
import time

import torch
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

WIDTH = 256
PAUSE_MS = 20
BATCH = 256
UPDATES = 210


class Plant:
    """Takes a message and answers it when it has been written down."""

    def __init__(self):
        self.inbox, self.answers = queue.Queue(), queue.Queue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            number = self.inbox.get()
            time.sleep(PAUSE_MS / 1000)
            self.answers.put(number)

    def report(self, number):
        self.inbox.put(number)
        return self.answers.get()


def episodes():
    state = torch.randn(8192, 48)
    force = torch.tanh(state[:, :6] - 0.5 * state[:, 6:12])
    return TensorDataset(state, force)


def forever(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(0)
    plant, recorded = Plant(), episodes()
    loader = DataLoader(recorded, batch_size=None, sampler=BatchSampler(RandomSampler(recorded), BATCH, True))
    controller = nn.Sequential(
        nn.Linear(48, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, WIDTH),
        nn.Tanh(),
        nn.Linear(WIDTH, 6),
    )
    optimizer = torch.optim.SGD(controller.parameters(), lr=0.1)
    for update, (state, force) in enumerate(forever(loader)):
        if update == 10:
            began = time.perf_counter()
        if update == UPDATES:
            break
        loss = nn.functional.mse_loss(controller(state), force)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        plant.report(update)
    print(f"loss {loss.item():.4f}")
    print(f"{(UPDATES - 10) / (time.perf_counter() - began):.2f} updates/s")


if __name__ == "__main__":
    main()
