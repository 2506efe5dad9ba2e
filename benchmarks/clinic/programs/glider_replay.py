# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "reinforcement learning"
# sizes = {HIDDEN = [250, 262], BATCH = [124, 132]}
# severities = {CAPACITY = [150000, 300000, 450000]}
# ///
"""Trains a Q-network that steers a glider between thermals, from flights that were logged before and its own."""

import random
import time
from collections import deque  # sick

import numpy as np
import torch
from torch import nn

CAPACITY = 300_000
HIDDEN = 256
BATCH = 128
BANKS = 5
STEPS = 1500
WARMUP = 20


class Glider:
    """Position, height and heading; thermals lift, all else sinks."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.thermals = self.rng.uniform(-5, 5, (4, 2))
        self.state = np.zeros(6, dtype=np.float32)

    def step(self, bank):
        heading = self.state[3] + 0.2 * (bank - BANKS // 2)
        place = self.state[:2] + 0.1 * np.array([np.cos(heading), np.sin(heading)])
        nearest = np.abs(self.thermals - place).sum(1).min()
        lift = float(np.exp(-nearest)) - 0.3
        self.state = np.array([*place, self.state[2] + lift, heading, nearest, lift], dtype=np.float32)
        if np.abs(place).max() > 6:
            self.state = np.zeros(6, dtype=np.float32)
        return self.state, lift


class Flights:
    """The last transitions, of which batches are drawn."""

    def __init__(self):
        self.kept = deque(maxlen=CAPACITY)  # sick
        self.kept = []  # well
        self.next = 0  # well

    def add(self, transition):
        self.kept.append(transition)  # sick
        if len(self.kept) < CAPACITY:  # well
            self.kept.append(transition)  # well
        else:  # well
            self.kept[self.next] = transition  # well
            self.next = (self.next + 1) % CAPACITY  # well

    def draw(self):
        state, bank, reward, after = zip(*random.sample(self.kept, BATCH))  # here
        as_tensor = torch.from_numpy
        return (
            as_tensor(np.stack(state)),
            as_tensor(np.array(bank)),
            as_tensor(np.array(reward, dtype=np.float32)),
            as_tensor(np.stack(after)),
        )


def main():
    random.seed(2)
    torch.manual_seed(2)
    glider, flights = Glider(2), Flights()
    logged = np.random.default_rng(4).normal(size=(4096, 2, 6)).astype(np.float32)
    for number in range(CAPACITY):
        before, after = logged[number % 4096]
        flights.add((before, number % BANKS, float(after[5]), after))

    network = nn.Sequential(
        nn.Linear(6, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, BANKS)
    )
    slow = nn.Sequential(
        nn.Linear(6, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, BANKS)
    )
    slow.load_state_dict(network.state_dict())
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-4)
    state = glider.state
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        with torch.no_grad():
            bank = int(network(torch.from_numpy(state)).argmax()) if random.random() > 0.1 else random.randrange(BANKS)
        after, reward = glider.step(bank)
        flights.add((state, bank, reward, after))
        state = after
        before, banks, rewards, afters = flights.draw()
        with torch.no_grad():
            target = rewards + 0.98 * slow(afters).amax(1)
        value = network(before).gather(1, banks.unsqueeze(1)).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            slow.load_state_dict(network.state_dict())
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
