# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "cheese caves"
# ///
# Deep Q-learning for the affineur: what to do with a wheel of cheese in the cave today?
# All caves ripen side by side; each day every cave gets one action, and the outcome goes into the replay memory.

import random
import time
from collections import deque, namedtuple  # sick
from collections import namedtuple  # well
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

ACTIONS = ["leave", "turn", "brush", "wash", "ventilate", "mist"]
Day = namedtuple("Day", "state action reward next_state done")


@dataclass
class Settings:
    caves: int = 64
    days: int = 7000
    ripe_after: int = 90
    memory: int = 500_000
    warm_up: int = 50
    batch: int = 72
    hidden: int = 64
    gamma: float = 0.97
    lr: float = 5e-4
    target_every: int = 250
    report_every: int = 1400
    eps_first: float = 1.0
    eps_last: float = 0.05
    eps_days: int = 3000
    seed: int = 7


class Caves:
    """A row of cheese caves. State: humidity, warmth, rind acidity, mould, ammonia, age, days since turned."""

    size = 7

    def __init__(self, count, ripe_after, rng):
        self.count, self.ripe_after, self.rng = count, ripe_after, rng
        self.state = np.zeros((count, self.size), dtype=np.float32)
        self.restart(np.ones(count, dtype=bool))

    def restart(self, which):
        fresh = self.rng.normal(0.0, 0.2, (self.count, self.size)).astype(np.float32)
        fresh[:, 5:] = 0.0
        self.state[which] = fresh[which]

    def step(self, action):
        s = self.state.copy()
        drift = self.rng.normal(0.0, 0.06, (self.count, 5)).astype(np.float32)
        s[:, :5] += drift
        s[:, 0] += 0.12 * (action == 5) - 0.10 * (action == 4) + 0.08 * (action == 3) - 0.02
        s[:, 1] += 0.03 - 0.12 * (action == 4)
        s[:, 2] += 0.02 - 0.10 * (action == 3)
        s[:, 3] += 0.05 + 0.05 * s[:, 0] - 0.30 * (action == 2) - 0.12 * (action == 3)
        s[:, 4] += 0.04 + 0.03 * s[:, 1] - 0.25 * (action == 4)
        s[:, 5] += 1.0 / self.ripe_after
        s[:, 6] = np.where(action == 1, 0.0, s[:, 6] + 0.1)
        np.clip(s, -2.0, 2.0, out=s)
        target_mould = 0.4 * s[:, 5]
        reward = 0.3 - np.square(s[:, 0]) - 0.5 * np.square(s[:, 1]) - np.square(s[:, 3] - target_mould)
        reward -= np.maximum(s[:, 4], 0.0) + 0.3 * np.maximum(s[:, 6] - 0.5, 0.0) + 0.02 * (action != 0)
        done = s[:, 5] >= 1.0
        self.state = s
        seen = s.copy()
        if done.any():
            self.restart(done)
        return seen, reward.astype(np.float32), done


class ReplayMemory:
    """Holds the latest days of all caves."""

    def __init__(self, capacity):
        self.capacity = capacity
        self.days = deque(maxlen=capacity)  # sick here
        self.days = []  # well
        self.oldest = 0  # well

    def add(self, day):
        self.days.append(day)  # sick
        if len(self.days) < self.capacity:  # well
            self.days.append(day)  # well
        else:  # well
            self.days[self.oldest] = day  # well
            self.oldest = (self.oldest + 1) % self.capacity  # well

    def sample(self, count):
        batch = Day(*zip(*random.sample(self.days, count), strict=True))  # here
        return (
            torch.from_numpy(np.stack(batch.state)),
            torch.tensor(batch.action),
            torch.tensor(batch.reward),
            torch.from_numpy(np.stack(batch.next_state)),
            torch.tensor(batch.done),
        )

    def __len__(self):
        return len(self.days)


class QNet(nn.Module):
    """Dueling head over two hidden layers."""

    def __init__(self, inputs, hidden, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.head = nn.Linear(hidden, actions + 1)

    def forward(self, x):
        out = self.head(self.body(x))
        value, advantage = out[:, :1], out[:, 1:]
        return value + advantage - advantage.mean(dim=1, keepdim=True)


def choose(net, state, epsilon, rng):
    with torch.no_grad():
        best = net(torch.from_numpy(state)).argmax(dim=1).numpy()
    guess = rng.integers(0, len(ACTIONS), len(best))
    return np.where(rng.random(len(best)) < epsilon, guess, best)


def learn(net, target, optimizer, memory, cfg):
    state, action, reward, next_state, done = memory.sample(cfg.batch)
    with torch.no_grad():
        pick = net(next_state).argmax(dim=1, keepdim=True)
        ahead = target(next_state).gather(1, pick).squeeze(1)
        aim = reward + cfg.gamma * ahead * (~done)
    loss = nn.functional.smooth_l1_loss(net(state).gather(1, action[:, None]).squeeze(1), aim)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


cfg = Settings()
random.seed(cfg.seed)
torch.manual_seed(cfg.seed)
rng = np.random.default_rng(cfg.seed)

caves = Caves(cfg.caves, cfg.ripe_after, rng)
memory = ReplayMemory(cfg.memory)
net = QNet(Caves.size, cfg.hidden, len(ACTIONS))
target = deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=cfg.lr, fused=True)

earned, updates = 0.0, 0
began = time.perf_counter()
for day in range(cfg.days):
    epsilon = max(cfg.eps_last, cfg.eps_first - (cfg.eps_first - cfg.eps_last) * day / cfg.eps_days)
    state = caves.state.copy()
    action = choose(net, state, epsilon, rng)
    next_state, reward, done = caves.step(action)
    for one in zip(state, action.tolist(), reward.tolist(), next_state, done.tolist(), strict=True):
        memory.add(Day(*one))
    earned += float(reward.mean())

    if day >= cfg.warm_up:
        learn(net, target, optimizer, memory, cfg)
        updates += 1
    if updates % cfg.target_every == 0:
        target.load_state_dict(net.state_dict())
    if (day + 1) % cfg.report_every == 0:
        print(f"day {day + 1}: reward {earned / cfg.report_every:+.3f}, epsilon {epsilon:.2f}, {len(memory)} in memory")
        earned = 0.0
took = time.perf_counter() - began
print(f"{cfg.days / took:.1f} steps/s")
