# /// clinic
# expect = ["PD15.growing-tensor"]
# stratum = "twins"
# domain = "hurdy-gurdy drone intonation"
# ///
"""Double DQN that turns the pegs of a hurdy-gurdy until the drones agree with the chanterelle.

The agent hears a 96-band constant-Q frame of the three drones (gros bourdon, petit bourdon, trompette) and picks
one of seven peg moves. Strings drift with wheel pressure and humidity while it works.
"""

import math
import random
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    envs: int = 16
    bands: int = 96
    horizon: int = 60
    warmup: int = 4_000
    capacity: int = 50_000
    steps: int = 2_100
    batch: int = 256
    hidden: int = 256
    gamma: float = 0.97
    lr: float = 5e-4
    tau: float = 0.01
    eps_start: float = 0.5
    eps_end: float = 0.05
    eval_every: int = 500
    seed: int = 17


class HurdyGurdy:
    """Batched simulation: one row is one instrument with three drones, state in cents off pitch."""

    moves = torch.tensor([[0, 0, 0], [8, 0, 0], [-8, 0, 0], [0, 8, 0], [0, -8, 0], [0, 0, 8], [0, 0, -8]]).float()
    pitches = torch.tensor([-2400.0, -1200.0, -500.0])

    def __init__(self, n, cfg, seed):
        self.n, self.cfg = n, cfg
        self.gen = torch.Generator().manual_seed(seed)
        partials = 1200 * torch.log2(torch.arange(1, 7).float())
        self.grid = torch.linspace(-2500, 2700, cfg.bands)
        self.centres = self.pitches[:, None] + partials
        self.weight = 1 / torch.arange(1, 7).float() ** 0.7
        self.reset(torch.ones(n, dtype=torch.bool))

    def reset(self, which):
        if not hasattr(self, "cents"):
            self.cents = torch.zeros(self.n, 3)
            self.clock = torch.zeros(self.n)
        fresh = torch.randn(self.n, 3, generator=self.gen) * 35
        self.cents = torch.where(which[:, None], fresh, self.cents)
        self.clock = torch.where(which, torch.zeros(()), self.clock)

    def observe(self):
        at = self.centres[None] + self.cents[..., None]
        peaks = torch.exp(-(((self.grid - at[..., None]) / 40) ** 2)) * self.weight[:, None]
        frame = peaks.sum((1, 2))
        return torch.log1p(frame + 0.02 * torch.rand(frame.shape, generator=self.gen))

    def step(self, action):
        before = self.cents.abs().sum(1)
        slip = 1 + 0.2 * torch.randn(self.n, 1, generator=self.gen)
        drift = 0.6 * torch.randn(self.n, 3, generator=self.gen)
        self.cents = self.cents + self.moves[action] * slip + drift
        self.clock = self.clock + 1
        after = self.cents.abs().sum(1)
        reward = (before - after) / 10 - 0.05 * (action != 0)
        done = (self.clock >= self.cfg.horizon) | (self.cents.abs().amax(1) > 150)
        seen = self.observe()
        self.reset(done)
        return seen, reward, done.float()


class Replay:
    def __init__(self, capacity, bands):
        self.capacity = capacity
        shapes = {"obs": (bands,), "action": (), "reward": (), "next_obs": (bands,), "done": ()}
        rows = 0  # sick
        rows = capacity  # well
        self.store = {
            k: torch.empty(rows, *s, dtype=torch.long if k == "action" else torch.float32) for k, s in shapes.items()
        }
        self.total = 0

    def __len__(self):
        return min(self.total, self.capacity)

    def push(self, **rows):
        n = len(rows["action"])
        where = (self.total + torch.arange(n)) % self.capacity  # well
        for key, value in rows.items():
            self.store[key] = torch.cat([self.store[key], value])[-self.capacity :]  # sick here
            self.store[key][where] = value  # well
        self.total += n

    def sample(self, n):
        index = torch.randint(len(self), (n,))
        return {k: v[index] for k, v in self.store.items()}


class QNet(nn.Module):
    def __init__(self, bands, hidden, actions):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(bands, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, actions)

    def forward(self, x):
        z = self.body(x)
        a = self.advantage(z)
        return self.value(z) + a - a.mean(-1, keepdim=True)


class Agent:
    def __init__(self, cfg):
        self.cfg = cfg
        self.actions = len(HurdyGurdy.moves)
        self.q = QNet(cfg.bands, cfg.hidden, self.actions)
        self.target = QNet(cfg.bands, cfg.hidden, self.actions)
        self.target.load_state_dict(self.q.state_dict())
        self.optim = torch.optim.Adam(self.q.parameters(), lr=cfg.lr)

    @torch.no_grad()
    def act(self, obs, eps):
        greedy = self.q(obs).argmax(-1)
        explore = torch.rand(len(obs)) < eps
        return torch.where(explore, torch.randint(self.actions, greedy.shape), greedy)

    def learn(self, b):
        with torch.no_grad():
            best = self.q(b["next_obs"]).argmax(-1, keepdim=True)
            future = self.target(b["next_obs"]).gather(-1, best).squeeze(-1)
            goal = b["reward"] + self.cfg.gamma * (1 - b["done"]) * future
        value = self.q(b["obs"]).gather(-1, b["action"][:, None]).squeeze(-1)
        loss = F.smooth_l1_loss(value, goal)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.q.parameters()):
                slow.lerp_(fast, self.cfg.tau)
        return loss.item()


def mistuning(agent, cfg):
    env = HurdyGurdy(32, cfg, seed=999)
    obs = env.observe()
    for _ in range(cfg.horizon - 5):
        obs, _, _ = env.step(agent.act(obs, 0.0))
    return env.cents.abs().mean().item()


def main():
    cfg = Config()
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    agent, memory = Agent(cfg), Replay(cfg.capacity, cfg.bands)
    env = HurdyGurdy(cfg.envs, cfg, cfg.seed)
    obs, losses = env.observe(), []
    for step in range(-cfg.warmup // cfg.envs, cfg.steps):
        if step == 0:
            begin = time.perf_counter()
        eps = cfg.eps_end + (cfg.eps_start - cfg.eps_end) * math.exp(-4 * step / cfg.steps) if step >= 0 else 1.0
        action = agent.act(obs, eps)
        after, reward, done = env.step(action)
        memory.push(obs=obs, action=action, reward=reward, next_obs=after, done=done)
        obs = torch.where(done[:, None] > 0, env.observe(), after)
        if step >= 0:
            losses.append(agent.learn(memory.sample(cfg.batch)))
            if (step + 1) % cfg.eval_every == 0:
                recent = sum(losses[-100:]) / 100
                print(f"{step + 1}: loss {recent:.4f}, drones off by {mistuning(agent, cfg):.1f} cents")
    rate = cfg.steps / (time.perf_counter() - begin)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
