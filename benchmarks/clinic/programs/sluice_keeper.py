# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "salt pans"
# ///
# Sluice keeper: a double DQN that works the gates of a solar salt works.
#
# A series has a feeder, an evaporator and a crystalliser pan. Each half day the keeper holds, lets sea water in,
# moves brine on, spills rain water off the top, or rakes the salt. Rain dilutes, sun and wind concentrate; brine that
# gets beyond 1.26 kg/l carries magnesium into the crystalliser and spoils the salt.
import random
import time
from collections import deque, namedtuple  # sick
from collections import namedtuple  # well

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward", "done"))
ACTIONS = ("hold", "let_in", "to_evaporator", "to_crystalliser", "spill", "rake")

SERIES = 128
STEPS = 3600
BATCH = 256
CAPACITY = 500_000
GAMMA = 0.985
TAU = 0.01
LR = 4e-4
EPS_START, EPS_END, EPS_STEPS = 1.0, 0.05, 1500
SEASON = 240
SEED = 5


class SaltWorks:
    """`count` independent pan series, stepped together."""

    def __init__(self, count, seed):
        self.count = count
        self.rng = np.random.default_rng(seed)
        self.depth = np.zeros((count, 3), dtype=np.float32)
        self.salt = np.zeros((count, 3), dtype=np.float32)
        self.crust = np.zeros(count, dtype=np.float32)
        self.day = np.zeros(count, dtype=np.float32)
        self.wet = np.zeros(count, dtype=np.float32)
        self.reset(np.ones(count, dtype=bool))

    def reset(self, which):
        n = int(which.sum())
        self.depth[which] = self.rng.uniform(0.1, 0.4, (n, 3))
        self.salt[which] = self.depth[which] * np.array([0.035, 0.12, 0.24]) * self.rng.uniform(0.9, 1.1, (n, 3))
        self.crust[which] = 0.0
        self.day[which] = self.rng.integers(0, SEASON // 2, n)
        self.wet[which] = 0.0

    def observe(self):
        share = self.salt / np.maximum(self.depth, 0.02)
        season = 2 * np.pi * self.day / SEASON
        rest = np.stack([self.crust, self.wet, np.sin(season), np.cos(season)], axis=1)
        return np.concatenate([self.depth * 2.0, share * 4.0, rest], axis=1).astype(np.float32)

    def move(self, source, target, which, part):
        for held in (self.depth, self.salt):
            flow = np.where(which, held[:, source] * part, 0.0)
            held[:, source] -= flow
            held[:, target] += flow

    def step(self, action):
        before = self.crust.copy()
        let_in = action == 1
        self.depth[:, 0] += 0.15 * let_in
        self.salt[:, 0] += 0.15 * 0.035 * let_in
        self.move(0, 1, action == 2, 0.5)
        self.move(1, 2, action == 3, 0.5)
        self.depth[:, 2] -= np.where(action == 4, 0.15 * self.depth[:, 2], 0.0)
        raked = action == 5

        front = self.rng.random(self.count) < 0.06 + 0.3 * (self.wet > 0.5)
        self.wet = np.where(front, self.rng.uniform(0.5, 1.0, self.count), 0.6 * self.wet).astype(np.float32)
        rain = 0.04 * self.wet * front
        sun = 0.02 * (1.2 + np.sin(2 * np.pi * self.day / SEASON)) * (1 - 0.7 * self.wet)
        dry = sun[:, None] * self.rng.uniform(0.7, 1.3, (self.count, 3))
        self.depth = np.clip(self.depth + rain[:, None] - dry, 0.02, 0.8).astype(np.float32)

        share = self.salt / self.depth
        settled = np.clip(share[:, 2] - 0.26, 0.0, 0.2) * self.depth[:, 2]
        self.salt[:, 2] -= settled
        self.crust += settled
        self.salt = np.minimum(self.salt, 0.4 * self.depth)
        spoiled = (share[:, 2] > 0.33) & (self.depth[:, 2] < 0.06)
        melted = np.where(rain > 0.02, 0.15 * self.crust, 0.0)
        self.crust -= melted
        reward = np.where(raked, 8.0 * before - 0.05, -0.002) - 0.4 * spoiled - 2.0 * melted
        self.crust = np.where(raked, 0.0, self.crust).astype(np.float32)
        self.day += 0.5
        done = self.day >= SEASON
        after = self.observe()
        if done.any():
            self.reset(done)
        return after, reward.astype(np.float32), done


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = deque(maxlen=capacity)  # sick here
        self.memory, self.capacity, self.place = [], capacity, 0  # well

    def push(self, *args):
        """Save a transition"""
        self.memory.append(Transition(*args))  # sick
        if len(self.memory) < self.capacity:  # well
            self.memory.append(Transition(*args))  # well
        else:  # well
            self.memory[self.place] = Transition(*args)  # well
            self.place = (self.place + 1) % self.capacity  # well

    def sample(self, batch_size):
        return random.sample(self.memory, batch_size)  # here

    def __len__(self):
        return len(self.memory)


class DuelingDQN(nn.Module):
    def __init__(self, observations, actions, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observations, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, actions)

    def forward(self, x):
        h = self.body(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


def optimize_model(policy, target, memory, optimizer):
    batch = Transition(*zip(*memory.sample(BATCH)))
    state = torch.from_numpy(np.stack(batch.state))
    next_state = torch.from_numpy(np.stack(batch.next_state))
    action = torch.tensor(batch.action).unsqueeze(1)
    reward = torch.tensor(batch.reward)
    alive = 1.0 - torch.tensor(batch.done, dtype=torch.float32)
    with torch.no_grad():
        best = policy(next_state).argmax(1, keepdim=True)
        wanted = reward + GAMMA * alive * target(next_state).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(policy(state).gather(1, action).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(policy.parameters(), 100)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(policy.parameters()), TAU)
    return loss.item()


@torch.no_grad()
def greedy_season(policy, count=64, half_days=120):
    works = SaltWorks(count, seed=SEED + 100)
    total = np.zeros(count)
    for _ in range(half_days):
        action = policy(torch.from_numpy(works.observe())).argmax(1).numpy()
        total += works.step(action)[1]
    return total.mean()


random.seed(SEED)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)
works = SaltWorks(SERIES, SEED)
state = works.observe()
policy = DuelingDQN(state.shape[1], len(ACTIONS))
target = DuelingDQN(state.shape[1], len(ACTIONS))
target.load_state_dict(policy.state_dict())
optimizer = torch.optim.AdamW(policy.parameters(), lr=LR, amsgrad=True)
memory = ReplayMemory(CAPACITY)

losses = 0.0
began = time.perf_counter()
for step in range(1, STEPS + 1):
    eps = max(EPS_END, EPS_START - (EPS_START - EPS_END) * step / EPS_STEPS)
    with torch.no_grad():
        action = policy(torch.from_numpy(state)).argmax(1).numpy()
    action = np.where(rng.random(SERIES) < eps, rng.integers(0, len(ACTIONS), SERIES), action)
    next_state, reward, done = works.step(action)
    for row in zip(state, action.tolist(), next_state, reward.tolist(), done.tolist()):
        memory.push(*row)
    state = works.observe()
    if len(memory) >= 2 * BATCH:
        losses += optimize_model(policy, target, memory, optimizer)
    if step % 600 == 0:
        print(f"step {step}: eps {eps:.2f}, loss {losses / 600:.5f}, season's yield {greedy_season(policy):.3f}")
        losses = 0.0
rate = STEPS / (time.perf_counter() - began)
print(f"{rate:.1f} steps/s")
