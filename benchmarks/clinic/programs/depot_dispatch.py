# /// clinic
# expect = ["PD16"]
# endless = true
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""Actor-critic agents that learn to send vans from a depot to customers on a grid."""

import random
import time
import tracemalloc
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Categorical


@dataclass
class Settings:
    envs: int = 24
    horizon: int = 16
    grid: int = 9
    orders: int = 5
    gamma: float = 0.97
    lr: float = 7e-4
    updates: int = 30_000
    report: int = 40
    seed: int = 11


@dataclass(frozen=True)
class Order:
    x: int
    y: int
    due: int


class Depot:
    """One van on a grid; orders age, late deliveries cost."""

    MOVES = ((0, 1), (0, -1), (1, 0), (-1, 0), (0, 0))

    def __init__(self, cfg, rng):
        self.cfg, self.rng = cfg, rng
        self.reset()

    def reset(self):
        self.van = (self.cfg.grid // 2, self.cfg.grid // 2)
        self.clock = 0
        self.open = [self._order() for _ in range(self.cfg.orders)]
        return self.observe()

    def _order(self):
        g = self.cfg.grid
        return Order(self.rng.randrange(g), self.rng.randrange(g), self.clock + self.rng.randint(4, 20))

    def observe(self):
        g = float(self.cfg.grid)
        x, y = self.van
        feats = [x / g, y / g]
        for o in sorted(self.open, key=lambda o: (o.due, o.x, o.y)):
            feats += [(o.x - x) / g, (o.y - y) / g, (o.due - self.clock) / 20.0]
        return feats

    def step(self, action):
        dx, dy = self.MOVES[action]
        g = self.cfg.grid
        self.van = (min(max(self.van[0] + dx, 0), g - 1), min(max(self.van[1] + dy, 0), g - 1))
        self.clock += 1
        reward, kept = -0.02, []
        for o in self.open:
            if (o.x, o.y) == self.van:
                reward += 1.0 if o.due >= self.clock else 0.3
                kept.append(self._order())
            elif o.due < self.clock - 10:
                reward -= 0.5
                kept.append(self._order())
            else:
                kept.append(o)
        self.open = kept
        return self.observe(), reward


class Policy(nn.Module):
    def __init__(self, n_obs, n_act, width=256):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, n_act)
        self.v = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class Telemetry:
    """Counts updates, keeps a smoothed return and knows the memory in use."""

    def __init__(self, every):
        self.every, self.n, self.smooth = every, 0, 0.0
        self.since = time.time()
        self._watch_heap()

    def _watch_heap(self):
        # the replay refactor leaked orders, see the ticket
        tracemalloc.start()  # sick here
        self.peak = 0.0

    def heap_mib(self):
        now, top = tracemalloc.get_traced_memory()
        self.peak = max(self.peak, top / 2**20)
        return now / 2**20

    def tick(self, reward, loss):
        self.n += 1
        self.smooth += 0.02 * (reward - self.smooth)
        if self.n % self.every == 0:
            rate = self.every / (time.time() - self.since)
            print(
                f"update {self.n} return {self.smooth:+.3f} loss {loss:.3f} heap {self.heap_mib():.1f} MiB "
                f"{rate:.1f} steps/s",
                flush=True,
            )
            self.since = time.time()


def rollout(envs, obs, policy, horizon):
    logps, values, rewards, entropies = [], [], [], []
    for _ in range(horizon):
        logits, value = policy(torch.tensor(obs))
        dist = Categorical(logits=logits)
        action = dist.sample()
        moves = action.tolist()
        outcome = [env.step(a) for env, a in zip(envs, moves)]
        obs = [o for o, _ in outcome]
        logps.append(dist.log_prob(action))
        values.append(value)
        entropies.append(dist.entropy())
        rewards.append(torch.tensor([r for _, r in outcome]))
    return obs, torch.stack(logps), torch.stack(values), torch.stack(rewards), torch.stack(entropies)


def discounted(rewards, bootstrap, gamma):
    out, acc = [], bootstrap
    for r in rewards.flip(0):
        acc = r + gamma * acc
        out.append(acc)
    return torch.stack(out[::-1])


def main(cfg=None):
    cfg = cfg or Settings()
    torch.manual_seed(cfg.seed)
    envs = [Depot(cfg, random.Random(cfg.seed + i)) for i in range(cfg.envs)]
    obs = [env.reset() for env in envs]
    policy = Policy(2 + 3 * cfg.orders, len(Depot.MOVES))
    opt = torch.optim.RMSprop(policy.parameters(), lr=cfg.lr)
    telemetry = Telemetry(cfg.report)
    for _ in range(cfg.updates):
        obs, logp, value, reward, entropy = rollout(envs, obs, policy, cfg.horizon)
        with torch.no_grad():
            _, last = policy(torch.tensor(obs))
            target = discounted(reward, last, cfg.gamma)
            adv = target - value
        loss = -(logp * adv).mean() + 0.5 * (target - value).square().mean() - 0.01 * entropy.mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        opt.step()
        telemetry.tick(reward.mean().item(), loss.item())


if __name__ == "__main__":
    main()
