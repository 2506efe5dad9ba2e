# /// clinic
# stratum = "decoys"
# domain = "reinforcement learning (DQN)"
# ///
"""Learn to balance a pole with a small deep Q-network."""

import copy
import gc
import time

import numpy as np
import torch
from torch import nn

ENVS = 16
HIDDEN = 96
MEMORY = 20000
BATCH = 128
STEPS = 7500
TARGET_EVERY = 250
GAMMA = 0.98


class CartPoles:
    def __init__(self, n, seed=0):
        self.rng = np.random.default_rng(seed)
        self.state = self.rng.uniform(-0.05, 0.05, (n, 4)).astype(np.float32)

    def step(self, action):
        x, v, angle, spin = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        cos, sin = np.cos(angle), np.sin(angle)
        temp = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = temp - 0.05 * turn * cos / 1.1
        after = np.stack([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * turn], 1)
        after = after.astype(np.float32)
        done = (np.abs(after[:, 0]) > 2.4) | (np.abs(after[:, 2]) > 0.21)
        before, self.state = self.state, after.copy()
        self.state[done] = self.rng.uniform(-0.05, 0.05, (int(done.sum()), 4))
        return before, after, done


class Memory:
    def __init__(self, size):
        self.rows = torch.zeros(size, 10)
        self.size, self.at, self.full = size, 0, 0

    def add(self, before, action, after, done):
        n = len(action)
        rows = np.concatenate([before, action[:, None], after, done[:, None]], axis=1).astype(np.float32)
        self.rows[(torch.arange(n) + self.at) % self.size] = torch.from_numpy(rows)
        self.at = (self.at + n) % self.size
        self.full = min(self.size, self.full + n)

    def sample(self, n):
        r = self.rows[torch.randint(0, self.full, (n,))]
        return r[:, :4], r[:, 4].long(), r[:, 5:9], r[:, 9]


def q_network():
    return nn.Sequential(nn.Linear(4, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 2))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    envs, memory, q = CartPoles(ENVS), Memory(MEMORY), q_network()
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=5e-4, fused=True)
    for step in range(1, STEPS + 1):
        for _ in range(2):
            with torch.no_grad():
                action = q(torch.from_numpy(envs.state)).argmax(1).numpy()
            explore = envs.rng.random(ENVS) < max(0.05, 1 - step / 3000)
            action = np.where(explore, envs.rng.integers(0, 2, ENVS), action)
            before, after, done = envs.step(action)
            memory.add(before, action, after, done)
        s, a, s2, end = memory.sample(BATCH)
        with torch.no_grad():
            goal = (1 - 2 * end) + GAMMA * (1 - end) * target(s2).max(1).values
        loss = nn.functional.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % TARGET_EVERY == 0:
            target.load_state_dict(q.state_dict())
        if step % 2500 == 0:
            gc.collect()
        if step == 20:
            start = time.perf_counter()
    print(f"{(STEPS - 20) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
