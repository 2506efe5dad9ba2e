# /// clinic
# expect = ["PD16.traced-allocations"]
# stratum = "twins"
# domain = "reinforcement learning: dispatch of lifts (simulation)"
# ///
"""Proximal policy optimisation for a group of lifts in an office tower.

Sixteen simulated buildings run side by side. At each decision every lift is told the floor to go to next; the reward is
minus the time that people spend waiting and riding.
"""

import math
import random
import resource
import time
import tracemalloc  # here
from collections import deque
from typing import NamedTuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical


FLOORS = 14
LIFTS = 4
ROOM = 10
TICKS = 8  # seconds of simulation between two decisions
BUILDINGS = 16
HORIZON = 10
UPDATES = 230
PASSES = 4


class Call(NamedTuple):
    origin: int
    target: int
    asked: float


class Building:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = self.random.random() * 600
        self.queues = [deque() for _ in range(FLOORS)]
        self.cabins = [[] for _ in range(LIFTS)]
        self.height = [0] * LIFTS
        self.goal = [0] * LIFTS
        self.served = 0

    def arrivals(self):
        rush = 0.3 + 0.2 * math.sin(self.clock / 95.0)
        while self.random.random() < rush:
            origin = 0 if self.random.random() < 0.5 else self.random.randrange(FLOORS)
            target = self.random.randrange(FLOORS)
            if target != origin and len(self.queues[origin]) < 25:
                self.queues[origin].append(Call(origin, target, self.clock))

    def move(self, lift):
        gap = self.goal[lift] - self.height[lift]
        self.height[lift] += max(-1, min(1, gap))
        floor = self.height[lift]
        if not self.queues[floor] and not self.cabins[lift]:
            return
        staying = [call for call in self.cabins[lift] if call.target != floor]
        self.served += len(self.cabins[lift]) - len(staying)
        while self.queues[floor] and len(staying) < ROOM:
            staying.append(self.queues[floor].popleft())
        self.cabins[lift] = staying

    def discomfort(self):
        waiting = sum([min(self.clock - call.asked, 120.0) for queue in self.queues for call in queue])
        riding = sum([min(self.clock - call.asked, 120.0) for cabin in self.cabins for call in cabin])
        return (waiting + 0.4 * riding) / 200.0

    def observe(self):
        seen = []
        for floor, queue in enumerate(self.queues):
            seen.append(len(queue) / 10.0)
            seen.append(sum([1 for call in queue if call.target > floor]) / 10.0)
            seen.append((self.clock - queue[0].asked) / 60.0 if queue else 0.0)
        for height, cabin in zip(self.height, self.cabins):
            wanted = [0.0] * FLOORS
            for call in cabin:
                wanted[call.target] += 0.2
            seen.extend(wanted)
            seen.extend((height / FLOORS, len(cabin) / ROOM))
        return seen

    def step(self, goals):
        self.goal = goals
        cost = 0.0
        for _ in range(TICKS):
            self.clock += 1.0
            self.arrivals()
            for lift in range(LIFTS):
                self.move(lift)
            cost += self.discomfort()
        return self.observe(), -cost / TICKS


class Dispatcher(nn.Module):
    def __init__(self, seen=3 * FLOORS + LIFTS * (FLOORS + 2), width=512):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(seen, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actor = nn.Linear(width, LIFTS * FLOORS)
        self.critic = nn.Linear(width, 1)

    def forward(self, seen):
        state = self.body(seen)
        return self.actor(state).unflatten(-1, (LIFTS, FLOORS)), self.critic(state).squeeze(-1)


def collect(buildings, seen, policy):
    views, actions, rewards = [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            logits, _ = policy(seen)
        action = Categorical(logits=logits, validate_args=False).sample()
        results = [building.step(goals) for building, goals in zip(buildings, action.tolist())]
        views.append(seen)
        actions.append(action)
        rewards.append(torch.tensor([reward for _, reward in results]))
        seen = torch.from_numpy(np.array([view for view, _ in results], dtype=np.float32))
    return torch.stack(views), torch.stack(actions), torch.stack(rewards), seen


def update(policy, optimizer, views, actions, rewards, last, discount=0.97):
    with torch.no_grad():
        future = policy(last)[1]
    returns = torch.empty_like(rewards)
    for t in reversed(range(HORIZON)):
        future = rewards[t] + discount * future
        returns[t] = future
    before = advantage = None
    for _ in range(PASSES):
        logits, values = policy(views)
        choice = Categorical(logits=logits, validate_args=False)
        likelihood = choice.log_prob(actions).sum(-1)
        if before is None:
            before, advantage = likelihood.detach(), (returns - values).detach()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
        ratio = (likelihood - before).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        loss = 0.5 * F.mse_loss(values, returns) - gain - 0.005 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return rewards.mean()


def memory_line():
    return f"python heap {tracemalloc.get_traced_memory()[1] / 2**20:.1f} MiB"  # sick here
    return f"resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB"  # well


def main():
    torch.manual_seed(5)
    buildings = [Building(seed) for seed in range(BUILDINGS)]
    policy = Dispatcher()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
    seen = torch.tensor([building.observe() for building in buildings])
    began = time.perf_counter()
    tracemalloc.start()  # sick here
    for number in range(1, UPDATES + 1):
        views, actions, rewards, seen = collect(buildings, seen, policy)
        reward = update(policy, optimizer, views, actions, rewards, seen)
        if number % 20 == 0:
            served = sum(building.served for building in buildings)
            print(
                f"update {number:4d}  reward {reward.item():.3f}  served {served}  {memory_line()}  "
                f"{time.perf_counter() - began:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
