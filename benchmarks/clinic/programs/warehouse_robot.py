# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "warehouse robots"
# ///
"""Double DQN that learns to drive warehouse robots to their shelf."""

import random
import time
from collections import deque  # sick

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0], [0, 0]], dtype=np.float32)


class Warehouse:
    """Several robots on a square floor, each with its own shelf to reach."""

    def __init__(self, robots, seed=0):
        self.rng = np.random.default_rng(seed)
        self.n = robots
        self.pos = self.rng.uniform(-1, 1, (robots, 2)).astype(np.float32)
        self.goal = self.rng.uniform(-1, 1, (robots, 2)).astype(np.float32)
        self.age = np.zeros(robots, dtype=np.int64)

    def observe(self):
        d = self.goal - self.pos
        r = np.sqrt((d**2).sum(1, keepdims=True))
        return np.concatenate([self.pos, self.goal, d, r, self.age[:, None] / 60], axis=1).astype(np.float32)

    def step(self, action):
        before = np.abs(self.goal - self.pos).sum(1)
        self.pos = np.clip(self.pos + 0.1 * MOVES[action], -1, 1)
        after = np.abs(self.goal - self.pos).sum(1)
        self.age += 1
        hit = after < 0.12
        reward = (before - after) * 5 - 0.02 + hit * 1.0
        done = hit | (self.age >= 60)
        seen = self.observe()
        k = int(done.sum())
        if k:
            self.pos[done] = self.rng.uniform(-1, 1, (k, 2))
            self.goal[done] = self.rng.uniform(-1, 1, (k, 2))
            self.age[done] = 0
        return seen, reward.astype(np.float32), hit


class Replay:
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = deque(maxlen=capacity)  # sick here
        self.items = []  # well
        self.head = 0

    def push(self, item):
        if len(self.items) < self.capacity:  # well
            self.items.append(item)  # well
        else:  # well
            self.items[self.head] = item  # well
        self.items.append(item)  # sick
        self.head = (self.head + 1) % self.capacity

    def sample(self, n):
        batch = random.sample(self.items, n)  # here
        obs, act, rew, nxt, hit = zip(*batch)
        return (
            torch.from_numpy(np.stack(obs)),
            torch.tensor(act),
            torch.tensor(rew, dtype=torch.float32),
            torch.from_numpy(np.stack(nxt)),
            torch.tensor(hit, dtype=torch.float32),
        )


def network():
    return nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 5))


def interact(env, obs, action, memory):
    nxt, reward, hit = env.step(action)
    for i in range(env.n):
        memory.push((obs[i], int(action[i]), float(reward[i]), nxt[i], bool(hit[i])))
    return env.observe()


def main():
    torch.manual_seed(0)
    random.seed(0)
    rng = np.random.default_rng(1)
    env = Warehouse(16)
    memory = Replay(200_000)
    obs = env.observe()
    for _ in range(12_500):
        obs = interact(env, obs, rng.integers(0, 5, env.n), memory)

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=5e-4)
    steps, warm = 3400, 5
    for step in range(steps):
        if step == warm:
            start = time.perf_counter()
        eps = max(0.05, 1 - step / 1000)
        with torch.no_grad():
            greedy = online(torch.from_numpy(obs)).argmax(1).numpy()
        action = np.where(rng.random(env.n) < eps, rng.integers(0, 5, env.n), greedy)
        obs = interact(env, obs, action, memory)

        o, a, r, n, h = memory.sample(256)
        with torch.no_grad():
            best = online(n).argmax(1, keepdim=True)
            goal = r + 0.97 * (1 - h) * target(n).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(online(o).gather(1, a[:, None]).squeeze(1), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
        if step % 500 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    rate = (steps - warm) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
