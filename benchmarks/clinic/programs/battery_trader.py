# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "battery trading"
# ///
"""A grid battery that learns to trade on the day-ahead market (double DQN)."""

import collections
import copy
import math
import random
import time

import numpy as np
import torch
from torch import nn

HOURS = 24
STEPS = 2200
WARM = 250_000
BATCH = 512
ACTIONS = (-1.0, -0.5, 0.0, 0.5, 1.0)

Transition = collections.namedtuple("Transition", "state action reward after done")


class Market:
    """Hourly prices with a daily shape, a slow random walk and spikes; a battery of four hours."""

    def __init__(self, seed, hours=200_000):
        rng = np.random.default_rng(seed)
        clock = np.arange(hours)
        daily = 12 * np.sin(2 * np.pi * (clock - 8) / 24) + 6 * np.sin(4 * np.pi * (clock - 5) / 24)
        drift = np.convolve(rng.normal(size=hours + 200), np.ones(200) / 14, "valid")[:hours]
        spikes = rng.exponential(25, hours) * (rng.random(hours) < 0.03)
        self.price = ((daily + 4 * drift + spikes) / 15).astype(np.float32)
        self.rng = rng
        self.reset()

    def reset(self):
        self.hour = int(self.rng.integers(HOURS, len(self.price) - 200))
        self.left = 168
        self.charge = 0.5
        return self.look()

    def look(self):
        state = np.empty(HOURS + 3, np.float32)
        state[:HOURS] = self.price[self.hour - HOURS + 1 : self.hour + 1]
        angle = 2 * math.pi * self.hour / 24
        state[HOURS:] = self.charge, math.sin(angle), math.cos(angle)
        return state

    def step(self, action):
        flow = min(max(ACTIONS[action] / 4, -self.charge), 1 - self.charge)
        reward = -flow * float(self.price[self.hour]) - 0.02 * abs(flow)
        self.charge += flow * (0.95 if flow > 0 else 1.0)
        self.hour += 1
        self.left -= 1
        return self.look(), reward, self.left == 0


class Memory:
    def __init__(self, capacity):
        self.capacity = capacity
        self.kept = collections.deque(maxlen=capacity)  # sick
        self.kept, self.oldest = [], 0  # well

    def push(self, transition):
        self.kept.append(transition)  # sick
        if len(self.kept) < self.capacity:  # well
            self.kept.append(transition)  # well
        else:  # well
            self.kept[self.oldest] = transition  # well
            self.oldest = (self.oldest + 1) % self.capacity  # well

    def draw(self, count):
        drawn = random.sample(self.kept, count)  # sick here
        drawn = [self.kept[i] for i in random.sample(range(len(self.kept)), count)]  # well
        state, action, reward, after, done = zip(*drawn)
        return (
            torch.from_numpy(np.stack(state)),
            torch.tensor(action),
            torch.tensor(reward),
            torch.from_numpy(np.stack(after)),
            torch.tensor(done, dtype=torch.float32),
        )


class Values(nn.Module):
    def __init__(self, width=384):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(HOURS + 3, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.worth = nn.Linear(width, 1)
        self.edge = nn.Linear(width, len(ACTIONS))

    def forward(self, state):
        hidden = self.body(state)
        edge = self.edge(hidden)
        return self.worth(hidden) + edge - edge.mean(1, keepdim=True)


def roam(market, memory, count):
    """Fills the memory from a random policy."""
    state = market.reset()
    for _ in range(count):
        action = random.randrange(len(ACTIONS))
        after, reward, done = market.step(action)
        memory.push(Transition(state, action, reward, after, done))
        state = market.reset() if done else after


def learn(values, target, optimizer, memory):
    state, action, reward, after, done = memory.draw(BATCH)
    with torch.no_grad():
        best = values(after).argmax(1, keepdim=True)
        goal = reward + 0.98 * (1 - done) * target(after).gather(1, best).squeeze(1)
    loss = nn.functional.smooth_l1_loss(values(state).gather(1, action[:, None]).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(values.parameters(), 5.0)
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), values.parameters()):
            slow.lerp_(fast, 0.01)
    return loss.item()


@torch.no_grad()
def earn(values, market, weeks=2):
    total = 0.0
    for _ in range(weeks):
        state, done = market.reset(), False
        while not done:
            state, reward, done = market.step(int(values(torch.from_numpy(state)[None]).argmax()))
            total += reward
    return total / weeks


def main():
    random.seed(3)
    torch.manual_seed(3)
    market, memory = Market(3), Memory(WARM)
    roam(market, memory, WARM)
    values = Values()
    target = copy.deepcopy(values)
    optimizer = torch.optim.Adam(values.parameters(), lr=3e-4)
    state, since, loss = market.reset(), None, 0.0
    for step in range(1, STEPS + 1):
        if random.random() < max(0.05, 1 - step / 1000):
            action = random.randrange(len(ACTIONS))
        else:
            with torch.no_grad():
                action = int(values(torch.from_numpy(state)[None]).argmax())
        after, reward, done = market.step(action)
        memory.push(Transition(state, action, reward, after, done))
        state = market.reset() if done else after
        loss = 0.99 * loss + 0.01 * learn(values, target, optimizer, memory)
        if step % 500 == 0:
            print(f"step {step}: loss {loss:.4f}, earns {earn(values, Market(1000, 5000)):.2f} a week", flush=True)
        if step == 5:
            since = time.perf_counter()
    print(f"{(STEPS - 5) / (time.perf_counter() - since):.2f} steps/s")


if __name__ == "__main__":
    main()
