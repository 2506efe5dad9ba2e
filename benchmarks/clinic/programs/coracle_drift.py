# /// clinic
# expect = ["PD10.rebuilt-by-cat", "PD15.growing-tensor"]
# stratum = "twins"
# domain = "coracle drift tracks"
# ///
"""Steering a coracle home over a tidal estuary: double DQN on simulated drift tracks.

The paddler sees the surface current around the boat, the tide and the bearing of the slipway, and picks one of
eight headings or lets the coracle drift.
"""

import copy
import math
import time
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Setup:
    boats: int = 64
    grid: int = 96
    reach: int = 6
    memory: int = 16_384
    warmup: int = 128
    iterations: int = 1_200
    batch: int = 256
    gamma: float = 0.97
    lr: float = 4e-4
    tau: float = 0.01
    seed: int = 3


class Estuary:
    """A batch of coracles on one current chart; positions in cells, time in tidal phase."""

    def __init__(self, cfg: Setup):
        self.cfg, n = cfg, cfg.grid
        y, x = torch.meshgrid(torch.linspace(0, 4, n), torch.linspace(0, 4, n), indexing="ij")
        stream = sum(
            a * torch.sin(math.pi * (kx * x + ky * y) + p)
            for a, kx, ky, p in zip(torch.rand(6) + 0.3, torch.randn(6) * 0.6, torch.randn(6) * 0.6, torch.rand(6) * 6)
        )
        u, v = torch.gradient(stream)
        flow = torch.stack([v, -u])
        self.flow = 0.7 * flow / flow.abs().amax()
        span = torch.arange(-cfg.reach, cfg.reach + 1)
        self.dy, self.dx = (g.reshape(-1) for g in torch.meshgrid(span, span, indexing="ij"))
        angle = torch.arange(8) * math.pi / 4
        paddle = torch.stack([angle.cos(), angle.sin()], 1) * 0.8
        self.paddle = torch.cat([torch.zeros(1, 2), paddle])
        self.home = torch.tensor([n * 0.5, n * 0.5])
        self.pos, self.tide, self.age = torch.zeros(cfg.boats, 2), torch.zeros(cfg.boats), torch.zeros(cfg.boats)
        self.launch(torch.ones(cfg.boats, dtype=torch.bool))

    @property
    def width(self) -> int:
        return 2 * len(self.dx) + 6

    def launch(self, which):
        k = int(which.sum())
        self.pos[which] = torch.rand(k, 2) * (self.cfg.grid - 1)
        self.tide[which] = torch.rand(k) * 2 * math.pi
        self.age[which] = 0

    def look(self):
        n = self.cfg.grid
        cell = self.pos.round().long()
        iy = (cell[:, 1:] + self.dy).clamp(0, n - 1)
        ix = (cell[:, :1] + self.dx).clamp(0, n - 1)
        around = self.flow[:, iy, ix] * self.tide.cos()[:, None]
        to = (self.home - self.pos) / n
        own = [to, to.norm(dim=1, keepdim=True), self.tide.cos()[:, None], self.tide.sin()[:, None]]
        return torch.cat([*around, *own, self.age[:, None] / 100], 1)

    def step(self, action):
        n = self.cfg.grid
        cell = self.pos.round().long().clamp(0, n - 1)
        drift = self.flow[:, cell[:, 1], cell[:, 0]].T * self.tide.cos()[:, None]
        before = (self.home - self.pos).norm(dim=1)
        self.pos = (self.pos + drift + self.paddle[action]).clamp(0, n - 1)
        self.tide = self.tide + 0.05
        self.age += 1
        after = (self.home - self.pos).norm(dim=1)
        ashore = after < 3
        reward = before - after - 0.05 * (action > 0) + 5.0 * ashore
        seen = self.look()
        over = ashore | (self.age >= 100)
        self.launch(over)
        return reward, seen, ashore, over


class DriftMemory:
    """The latest transitions of all boats."""

    def __init__(self, size: int, width: int):
        self.size = size
        rows = 0  # sick
        rows = size  # well
        self.seen = torch.zeros(rows, width)
        self.then = torch.zeros(rows, width)
        self.action = torch.zeros(rows, dtype=torch.long)
        self.reward = torch.zeros(rows)
        self.ended = torch.zeros(rows)
        self.filled = 0
        self.head = 0

    def add(self, seen, action, reward, then, ended):
        k = len(seen)
        self.seen = torch.cat([self.seen, seen])[-self.size :]  # sick here
        self.then = torch.cat([self.then, then])[-self.size :]  # sick here
        self.action = torch.cat([self.action, action])[-self.size :]  # sick
        self.reward = torch.cat([self.reward, reward])[-self.size :]  # sick
        self.ended = torch.cat([self.ended, ended.float()])[-self.size :]  # sick
        slot = (self.head + torch.arange(k)) % self.size  # well
        self.seen[slot] = seen  # well
        self.then[slot] = then  # well
        self.action[slot] = action  # well
        self.reward[slot] = reward  # well
        self.ended[slot] = ended.float()  # well
        self.head = (self.head + k) % self.size
        self.filled = min(self.filled + k, self.size)

    def draw(self, k: int):
        i = torch.randint(self.filled, (k,))
        return self.seen[i], self.action[i], self.reward[i], self.then[i], self.ended[i]


class Paddler(nn.Module):
    """Dueling value network."""

    def __init__(self, width: int, actions: int = 9, hidden: int = 384):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.gain = nn.Linear(hidden, actions)

    def forward(self, seen):
        h = self.trunk(seen)
        gain = self.gain(h)
        return self.value(h) + gain - gain.mean(1, keepdim=True)


def learn(net, target, opt, memory, cfg: Setup) -> float:
    seen, action, reward, then, ended = memory.draw(cfg.batch)
    with torch.no_grad():
        choice = net(then).argmax(1, keepdim=True)
        goal = reward + cfg.gamma * (1 - ended) * target(then).gather(1, choice).squeeze(1)
    loss = F.smooth_l1_loss(net(seen).gather(1, action[:, None]).squeeze(1), goal)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(net.parameters()), cfg.tau)
    return loss.item()


def main():
    cfg = Setup()
    torch.manual_seed(cfg.seed)
    sea = Estuary(cfg)
    memory = DriftMemory(cfg.memory, sea.width)
    net = Paddler(sea.width)
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)

    seen = sea.look()
    for _ in range(cfg.warmup):
        action = torch.randint(9, (cfg.boats,))
        reward, then, ashore, _ = sea.step(action)
        memory.add(seen, action, reward, then, ashore)
        seen = sea.look()

    landed = launched = 0
    began = time.perf_counter()
    for it in range(cfg.iterations):
        with torch.no_grad():
            action = net(seen).argmax(1)
        explore = torch.rand(cfg.boats) < max(0.05, 1 - it / 400)
        action = torch.where(explore, torch.randint(9, (cfg.boats,)), action)
        reward, then, ashore, over = sea.step(action)
        memory.add(seen, action, reward, then, ashore)
        seen = sea.look()
        loss = learn(net, target, opt, memory, cfg)
        landed, launched = landed + int(ashore.sum()), launched + int(over.sum())
        if (it + 1) % 100 == 0:
            print(f"{it + 1:5d}  td loss {loss:.4f}  tracks home {landed}/{launched}")
            landed = launched = 0
    took = time.perf_counter() - began
    print(f"{cfg.iterations / took:.1f} steps/s")


if __name__ == "__main__":
    main()
