# /// clinic
# stratum = "out-of-scope"
# domain = "reinforcement"
# smoke = true
# sizes = {WIDTH = [220, 300]}
# severities = {PARTICLES = [40, 90, 240]}
# ///
"""Keeps a chain of masses upright: actor-critic with a simulator written in Python."""

import math
import random
import time

import torch
from torch import nn
from torch.distributions import Categorical

WIDTH = 256
PARTICLES = 90
HORIZON = 16
BATCHES = 90


class Chain:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.reset()

    def reset(self):
        self.angles = [self.dice.uniform(-0.05, 0.05) for _ in range(PARTICLES)]
        self.speeds = [0.0] * PARTICLES
        return self.look()

    def look(self):
        return self.angles[:4] + self.speeds[:4]

    def step(self, action):
        push = 0.4 if action else -0.4
        for i in range(PARTICLES):
            left = self.angles[i - 1] if i else push
            pull = math.sin(self.angles[i]) + 0.5 * (left - self.angles[i])
            self.speeds[i] = 0.98 * self.speeds[i] + 0.02 * pull
        for i in range(PARTICLES):
            self.angles[i] += 0.05 * self.speeds[i]
        fallen = abs(self.angles[0]) > 0.4
        return (self.reset() if fallen else self.look()), 0.0 if fallen else 1.0, fallen


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.actor, self.critic = nn.Linear(WIDTH, 2), nn.Linear(WIDTH, 1)

    def forward(self, state):
        hidden = self.body(state)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


def main():
    torch.manual_seed(0)
    worlds = [Chain(seed) for seed in range(32)]
    states = torch.tensor([world.reset() for world in worlds])
    agent = ActorCritic()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.01)
    for batch in range(BATCHES):
        if batch == 5:
            start = time.perf_counter()
        logs, values, rewards, ends = [], [], [], []
        for _ in range(HORIZON):
            policy, value = agent(states)
            actions = policy.sample()
            seen = [world.step(action) for world, action in zip(worlds, actions.tolist(), strict=True)]
            states = torch.tensor([state for state, _, _ in seen])
            logs.append(policy.log_prob(actions))
            values.append(value)
            rewards.append(torch.tensor([reward for _, reward, _ in seen]))
            ends.append(torch.tensor([float(fallen) for _, _, fallen in seen]))
        goal, goals = agent(states)[1].detach(), []
        for reward, end in zip(rewards[::-1], ends[::-1], strict=True):
            goal = reward + 0.97 * goal * (1 - end)
            goals.append(goal)
        advantage = torch.stack(goals[::-1]) - torch.stack(values)
        loss = advantage.pow(2).mean() - (torch.stack(logs) * advantage.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if batch % 30 == 0:
            print(f"batch {batch}: loss {loss.item():.3f}")
    print(f"{(BATCHES - 5) * HORIZON * len(worlds) / (time.perf_counter() - start):.1f} frames/s")


main()
