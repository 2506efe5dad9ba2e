# /// clinic
# expect = ["PD04.explicit-collect"]
# allow = ["PD10.list-conversion", "PD04.automatic-collections"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""Q-learning in a maze world written in NumPy, with everything that happened remembered as plain records."""

import gc  # sick
import random
import time

import numpy as np
import torch
from torch import nn

WIDTH, MOVES, WALKERS = 12, 4, 96
STEP = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])


class Maze:
    """Many walkers in one maze; a walker that reaches the exit is put back at random."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.wall = self.rng.random((WIDTH, WIDTH)) < 0.2
        self.exit = np.array([WIDTH - 1, WIDTH - 1])
        self.wall[tuple(self.exit)] = False
        self.free = np.argwhere(~self.wall)
        self.at = self.free[self.rng.integers(0, len(self.free), WALKERS)]

    def see(self):
        toward = (self.exit - self.at) / WIDTH
        around = (self.at[:, None] + STEP).clip(0, WIDTH - 1)
        blocked = self.wall[around[..., 0], around[..., 1]]
        return np.concatenate([self.at / WIDTH, toward, blocked], axis=1).astype(np.float32)

    def walk(self, moves):
        target = (self.at + STEP[moves]).clip(0, WIDTH - 1)
        stuck = self.wall[target[:, 0], target[:, 1]]
        target[stuck] = self.at[stuck]
        home = (target == self.exit).all(1)
        reward = np.where(home, 1.0, -0.01 - 0.02 * stuck)
        target[home] = self.free[self.rng.integers(0, len(self.free), home.sum())]
        self.at = target
        return reward, home


class Memory:
    """Records of the past, linked walker by walker so that a path can be read back."""

    def __init__(self, past):
        self.records, self.latest = [], [None] * WALKERS
        for i in range(past):
            self.add(i % WALKERS, [0.0] * 8, i % MOVES, -0.01, [0.0] * 8, False)

    def add(self, walker, seen, move, reward, then, home):
        record = {"seen": seen, "move": move, "outcome": [reward, home], "then": then, "before": self.latest[walker]}
        self.latest[walker] = record
        self.records.append(record)

    def draw(self, count, dice):
        rows = dice.choices(self.records, k=count)
        seen = torch.tensor([r["seen"] for r in rows])
        then = torch.tensor([r["then"] for r in rows])
        move = torch.tensor([r["move"] for r in rows])
        outcome = torch.tensor([r["outcome"] for r in rows], dtype=torch.float32)
        return seen, move, outcome[:, 0], outcome[:, 1], then


def make_net():
    return nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, MOVES))


def main(steps=700, batch=192, past=60_000, skip=20):
    torch.manual_seed(0)
    dice, rng = random.Random(0), np.random.default_rng(0)
    maze, memory = Maze(0), Memory(past)
    net, slow = make_net(), make_net()
    slow.load_state_dict(net.state_dict())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    earned, seen = 0.0, maze.see()
    for step in range(steps):
        if step == skip:
            start = time.perf_counter()
        with torch.no_grad():
            best = net(torch.from_numpy(seen)).argmax(1).numpy()
        moves = np.where(rng.random(WALKERS) < 0.1, rng.integers(0, MOVES, WALKERS), best)
        reward, home = maze.walk(moves)
        then = maze.see()
        for walker, item in enumerate(
            zip(seen.tolist(), moves.tolist(), reward.tolist(), then.tolist(), home.tolist())
        ):
            memory.add(walker, *item)
        seen, earned = then, earned + reward.sum()

        s, m, r, h, t = memory.draw(batch, dice)
        with torch.no_grad():
            goal = r + 0.97 * (1 - h) * slow(t).max(1).values
        value = net(s).gather(1, m[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(value, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 9:  # sick
            gc.collect()  # sick here
        if (step + 1) % 200 == 0:
            slow.load_state_dict(net.state_dict())
            print(f"{step + 1}: reward per walker {earned / WALKERS:.3f}")
            earned = 0.0
    print(f"{(steps - skip) * batch / (time.perf_counter() - start):.1f} records/s")


if __name__ == "__main__":
    main()
