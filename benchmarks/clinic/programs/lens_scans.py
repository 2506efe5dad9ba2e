# /// clinic
# expect = ["PD10.rebuilt-by-cat", "PD15.growing-tensor"]
# stratum = "twins"
# domain = "lighthouse lens scans"
# ///
"""Learns where to point the scanner on a lighthouse lens: a double DQN chooses the next prism sector to measure.

A lens is a map of rings x bearings with clustered flaws (chips, crazing, putty failures). The probe starts in the
middle, moves in one of four directions and reveals the sectors around it; each newly seen flaw counts as reward,
each move costs a little.
"""

import time
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Settings:
    lenses: int = 16
    rings: int = 32
    bearings: int = 32
    horizon: int = 60
    capacity: int = 6_000
    warmup: int = 50
    updates: int = 480
    batch: int = 64
    gamma: float = 0.97
    lr: float = 5e-4
    sync_every: int = 40
    report_every: int = 80
    seed: int = 5
    moves: tuple = field(default=((-4, 0), (4, 0), (0, -4), (0, 4)))


class LensYard:
    """Some lenses that are scanned side by side; observation: seen intensities, seen mask, probe position."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.rng = np.random.default_rng(cfg.seed)
        self.flaws = np.zeros((cfg.lenses, cfg.rings, cfg.bearings), dtype=np.float32)
        self.seen = np.zeros_like(self.flaws)
        self.probe = np.zeros((cfg.lenses, 2), dtype=np.int64)
        self.age = np.zeros(cfg.lenses, dtype=np.int64)
        for k in range(cfg.lenses):
            self.restart(k)
            self.age[k] = self.rng.integers(cfg.horizon)

    def restart(self, k):
        cfg = self.cfg
        yy, xx = np.mgrid[0 : cfg.rings, 0 : cfg.bearings]
        field_ = np.zeros((cfg.rings, cfg.bearings), dtype=np.float32)
        for _ in range(4):
            cy, cx = self.rng.integers(cfg.rings), self.rng.integers(cfg.bearings)
            field_ += np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / 12.0).astype(np.float32)
        self.flaws[k] = field_ * (self.rng.random(field_.shape) < 0.6)
        self.seen[k] = 0
        self.probe[k] = (cfg.rings // 2, cfg.bearings // 2)
        self.age[k] = 0
        self.reveal(k)

    def reveal(self, k):
        y, x = self.probe[k]
        window = np.s_[max(y - 3, 0) : y + 4, max(x - 3, 0) : x + 4]
        fresh = self.flaws[k][window] * (1 - self.seen[k][window])
        self.seen[k][window] = 1
        return float(fresh.sum())

    def observe(self):
        place = np.zeros_like(self.seen)
        place[np.arange(self.cfg.lenses), self.probe[:, 0], self.probe[:, 1]] = 1
        return torch.from_numpy(np.stack([self.flaws * self.seen, self.seen, place], axis=1))

    def step(self, actions):
        cfg = self.cfg
        reward, done = np.zeros(cfg.lenses, dtype=np.float32), np.zeros(cfg.lenses, dtype=np.float32)
        for k, a in enumerate(actions):
            self.probe[k] = np.clip(self.probe[k] + cfg.moves[a], 0, (cfg.rings - 1, cfg.bearings - 1))
            reward[k] = self.reveal(k) - 0.2
            self.age[k] += 1
        after = self.observe()
        for k in np.flatnonzero(self.age >= cfg.horizon):
            done[k] = 1
            self.restart(k)
        return after, torch.from_numpy(reward), torch.from_numpy(done)


class Replay:
    def __init__(self, capacity, shape):
        self.capacity = capacity
        rows = 0  # sick
        rows = capacity  # well
        self.obs, self.after = torch.empty(rows, *shape), torch.empty(rows, *shape)
        self.action = torch.empty(rows, dtype=torch.long)
        self.reward, self.done = torch.empty(rows), torch.empty(rows)
        self.pushed = 0

    def __len__(self):
        return min(self.pushed, self.capacity)

    def push(self, obs, action, reward, after, done):
        self.obs = torch.cat([self.obs, obs])[-self.capacity :]  # sick here
        self.after = torch.cat([self.after, after])[-self.capacity :]  # sick here
        self.action = torch.cat([self.action, action])[-self.capacity :]  # sick
        self.reward = torch.cat([self.reward, reward])[-self.capacity :]  # sick
        self.done = torch.cat([self.done, done])[-self.capacity :]  # sick
        rows = torch.arange(self.pushed, self.pushed + len(obs)) % self.capacity  # well
        self.obs[rows], self.after[rows] = obs, after  # well
        self.action[rows], self.reward[rows], self.done[rows] = action, reward, done  # well
        self.pushed += len(obs)

    def sample(self, n):
        pick = torch.randint(len(self), (n,))
        return self.obs[pick], self.action[pick], self.reward[pick], self.after[pick], self.done[pick]


class DuelingNet(nn.Module):
    def __init__(self, moves):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 48, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.value = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 1))
        self.edge = nn.Sequential(nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, moves))

    def forward(self, x):
        h = self.body(x)
        edge = self.edge(h)
        return self.value(h) + edge - edge.mean(1, keepdim=True)


class Scanner:
    def __init__(self, cfg):
        self.cfg = cfg
        self.yard = LensYard(cfg)
        self.online, self.target = DuelingNet(len(cfg.moves)), DuelingNet(len(cfg.moves))
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=cfg.lr)
        self.replay = Replay(cfg.capacity, (3, cfg.rings, cfg.bearings))
        self.obs = self.yard.observe()

    @torch.no_grad()
    def act(self, epsilon):
        greedy = self.online(self.obs).argmax(1)
        random = torch.randint(len(self.cfg.moves), (self.cfg.lenses,))
        return torch.where(torch.rand(self.cfg.lenses) < epsilon, random, greedy)

    def collect(self, epsilon):
        action = self.act(epsilon)
        after, reward, done = self.yard.step(action.tolist())
        self.replay.push(self.obs, action, reward, after, done)
        self.obs = self.yard.observe()
        return reward.mean().item()

    def learn(self):
        obs, action, reward, after, done = self.replay.sample(self.cfg.batch)
        with torch.no_grad():
            choice = self.online(after).argmax(1, keepdim=True)
            goal = reward + self.cfg.gamma * (1 - done) * self.target(after).gather(1, choice).squeeze(1)
        value = self.online(obs).gather(1, action[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        return loss.item()

    def train(self):
        cfg = self.cfg
        for _ in range(cfg.warmup):
            self.collect(epsilon=1.0)
        start, rewards, losses = time.perf_counter(), [], []
        for update in range(1, cfg.updates + 1):
            rewards.append(self.collect(epsilon=max(0.05, 1 - 2 * update / cfg.updates)))
            losses.append(self.learn())
            if update % cfg.sync_every == 0:
                self.target.load_state_dict(self.online.state_dict())
            if update % cfg.report_every == 0:
                print(f"update {update}: reward {np.mean(rewards[-80:]):.3f}, loss {np.mean(losses[-80:]):.4f}")
        return cfg.updates / (time.perf_counter() - start)


if __name__ == "__main__":
    settings = Settings()
    torch.manual_seed(settings.seed)
    rate = Scanner(settings).train()
    print(f"{rate:.1f} updates/s")
