# /// clinic
# stratum = "decoys"
# domain = "reinforcement learning (double DQN)"
# ///
"""Trains a double DQN on a batch of simulated cart-poles."""

import collections
import json
import os
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import nn

SEED = 13
ENVS = 64
BATCH = 512
WIDTH = 320
MEMORY = 40_000
GAMMA = 0.99
STEPS = 1500
WARMUP = 20
SYNC = 100
SAVE = 500


class Poles:
    """Cart-pole dynamics for many poles at once."""

    def __init__(self, n, generator):
        self.g = generator
        self.state = self.fresh(n)
        self.age = torch.zeros(n)

    def fresh(self, n):
        return torch.rand(n, 4, generator=self.g) * 0.1 - 0.05

    def step(self, action):
        x, dx, a, da = self.state.unbind(1)
        force = action.float() * 20 - 10
        sin, cos = a.sin(), a.cos()
        push = (force + 0.05 * da * da * sin) / 1.1
        dda = (9.8 * sin - cos * push) / (0.5 * (4 / 3 - 0.1 * cos * cos / 1.1))
        ddx = push - 0.05 * dda * cos / 1.1
        after = torch.stack([x + 0.02 * dx, dx + 0.02 * ddx, a + 0.02 * da, da + 0.02 * dda], 1)
        self.age += 1
        done = (after[:, 0].abs() > 2.4) | (after[:, 2].abs() > 0.21)
        ended = self.age[done].tolist()
        self.state = torch.where(done[:, None], self.fresh(len(after)), after)
        self.age = torch.where(done, 0.0, self.age)
        return after, done, ended


class Memory:
    def __init__(self, size):
        self.rows = torch.zeros(size, 10)
        self.size, self.at, self.full = size, 0, False

    def push(self, *parts):
        block = torch.cat([p.float().view(p.size(0), -1) for p in parts], 1)
        where = (self.at + torch.arange(len(block))) % self.size
        self.rows[where] = block
        self.full = self.full or self.at + len(block) >= self.size
        self.at = (self.at + len(block)) % self.size

    def draw(self, n, generator):
        top = self.size if self.full else self.at
        rows = self.rows[torch.randint(top, (n,), generator=generator)]
        return rows[:, :4], rows[:, 4].long(), rows[:, 5:9], rows[:, 9]


def network():
    return nn.Sequential(
        nn.Linear(4, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 2),
    )


def make_learner(online, target, optimizer):
    def learn(s, a, after, done):
        with torch.no_grad():
            pick = online(after).argmax(1, keepdim=True)
            goal = 1.0 + GAMMA * (1 - done) * target(after).gather(1, pick).squeeze(1)
        q = online(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, goal)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(online.parameters(), 10.0)
        optimizer.step()
        return loss, q

    return learn


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    poles, memory = Poles(ENVS, g), Memory(MEMORY)
    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-4, fused=True)
    learn = make_learner(online, target, optimizer)
    losses, values, lifetimes = [], [], []
    recent = collections.deque(maxlen=100)
    folder = tempfile.TemporaryDirectory()
    for step in range(WARMUP + STEPS):
        if step == WARMUP:
            began = time.perf_counter()
        epsilon = max(0.05, 1.0 - step / 800)
        before = poles.state
        with torch.no_grad():
            greedy = online(before).argmax(1)
        explore = torch.rand(ENVS, generator=g) < epsilon
        action = torch.where(explore, torch.randint(2, (ENVS,), generator=g), greedy)
        after, done, ended = poles.step(action)
        memory.push(before, action, after, done)
        loss, q = learn(*memory.draw(BATCH, g))
        losses.append(loss.item())
        values.append((step, q.mean().item(), q.max().item()))
        lifetimes.extend(ended)
        recent.extend(ended)
        best = max(recent, default=0.0)
        if step % SYNC == 0:
            target.load_state_dict(online.state_dict())
        if step % SAVE == 0:
            torch.save(online.state_dict(), os.path.join(folder.name, f"q_{step}.pt"))
            with open(os.path.join(folder.name, "log.json"), "w") as f:
                json.dump({"loss": losses[-SAVE:], "best": best}, f)
    rate = STEPS / (time.perf_counter() - began)
    folder.cleanup()
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
