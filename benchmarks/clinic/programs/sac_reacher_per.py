# /// clinic
# expect = ["PD10.python-work"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""Soft actor-critic with prioritized replay on a batch of simulated two-link reachers.

The memory is warm-started by a random controller; then each round is one step of all arms and one gradient update.
"""

import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


CAPACITY = 2**19
NUM_ENVS = 16
BATCH = 256
GAMMA, TAU = 0.98, 0.005
UPDATES = 2200
OBS_DIM, ACT_DIM = 8, 2


class Reachers:
    """Two-link arms in the plane, stepped together in NumPy."""

    dt, horizon, link = 0.05, 150, np.array([0.6, 0.5], dtype=np.float32)

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.q, self.dq, self.goal = (np.zeros((n, 2), dtype=np.float32) for _ in range(3))
        self.t = np.zeros(n, dtype=np.int64)
        self._reset(np.ones(n, dtype=bool))

    def _reset(self, mask):
        k = int(mask.sum())
        self.q[mask] = self.rng.uniform(-np.pi, np.pi, (k, 2))
        self.dq[mask] = 0
        radius, angle = self.rng.uniform(0.3, 1.0, (k, 1)), self.rng.uniform(-np.pi, np.pi, k)
        self.goal[mask] = radius * np.stack([np.cos(angle), np.sin(angle)], 1)
        self.t[mask] = self.rng.integers(0, self.horizon // 2, k)

    def tip(self):
        a, b = self.q[:, 0], self.q[:, 0] + self.q[:, 1]
        return np.stack(
            [self.link[0] * np.cos(a) + self.link[1] * np.cos(b), self.link[0] * np.sin(a) + self.link[1] * np.sin(b)],
            1,
        )

    def obs(self):
        return np.concatenate([np.cos(self.q), np.sin(self.q), self.dq * 0.2, self.goal - self.tip()], 1).astype(
            np.float32
        )

    def step(self, act):
        self.dq += self.dt * (6.0 * act - 0.8 * self.dq)
        self.q += self.dt * self.dq
        self.t += 1
        nxt = self.obs()
        dist = np.linalg.norm(self.goal - self.tip(), axis=1)
        rew = (-dist - 0.02 * (act**2).sum(1) + (dist < 0.05)).astype(np.float32)
        over = self.t >= self.horizon
        self._reset(over)
        return nxt, rew, over


class PrioritizedReplay:
    def __init__(self, capacity, alpha=0.6, seed=0):
        self.capacity, self.alpha = capacity, alpha
        self.obs = np.zeros((capacity, OBS_DIM), dtype=np.float32)
        self.nxt = np.zeros((capacity, OBS_DIM), dtype=np.float32)
        self.act = np.zeros((capacity, ACT_DIM), dtype=np.float32)
        self.rew = np.zeros(capacity, dtype=np.float32)
        self.tree = np.zeros(2 * capacity)
        self.weight = self.tree[capacity:]
        self.size = self.head = 0
        self.max_priority = 1.0
        self.rng = np.random.default_rng(seed)

    def add(self, obs, act, rew, nxt):
        idx = (self.head + np.arange(len(obs))) % self.capacity
        self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx] = obs, act, rew, nxt
        self.head = (self.head + len(obs)) % self.capacity
        self.size = min(self.size + len(obs), self.capacity)
        self.update(idx, np.full(len(obs), self.max_priority))

    def update(self, idx, priority):
        self.weight[idx] = priority**self.alpha
        self.max_priority = max(self.max_priority, float(priority.max()))
        node = idx + self.capacity  # well
        while node[0] > 1:  # well
            node = node // 2  # well
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]  # well

    def draw(self, n):
        prob = self.weight[: self.size] / self.weight[: self.size].sum()  # sick here
        idx = self.rng.choice(self.size, n, p=prob)  # sick
        return idx, prob[idx]  # sick
        mass = (np.arange(n) + self.rng.random(n)) / n * self.tree[1]  # well
        node = np.ones(n, dtype=np.int64)  # well
        while node[0] < self.capacity:  # well
            node *= 2  # well
            left = self.tree[node]  # well
            right = mass > left  # well
            mass -= left * right  # well
            node += right  # well
        idx = np.minimum(node - self.capacity, self.size - 1)  # well
        return idx, self.weight[idx] / self.tree[1]  # well

    def sample(self, n, beta):
        idx, prob = self.draw(n)
        w = ((prob / prob.min()) ** -beta).astype(np.float32)
        return idx, [torch.from_numpy(c) for c in (self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx], w)]


def mlp(n_in, n_out, width=128):
    return nn.Sequential(nn.Linear(n_in, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, n_out))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(OBS_DIM, 2 * ACT_DIM)

    def forward(self, obs):
        mean, log_std = self.net(obs).chunk(2, -1)
        log_std = log_std.clamp(-5, 1)
        noise = torch.randn_like(mean)
        pre = mean + noise * log_std.exp()
        logp = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
        logp = logp - 2 * (math.log(2) - pre - F.softplus(-2 * pre))
        return torch.tanh(pre), logp.sum(-1)


def main():
    torch.manual_seed(0)
    memory = PrioritizedReplay(CAPACITY)
    warm = Reachers(4096, seed=1)
    rng = np.random.default_rng(2)
    obs = warm.obs()
    for _ in range(CAPACITY // 4096 - 8):
        act = rng.uniform(-1, 1, (4096, ACT_DIM)).astype(np.float32)
        nxt, rew, _ = warm.step(act)
        memory.add(obs, act, rew, nxt)
        obs = warm.obs()

    actor, q1, q2 = Actor(), mlp(OBS_DIM + ACT_DIM, 1), mlp(OBS_DIM + ACT_DIM, 1)
    critics = nn.ModuleList([q1, q2])
    targets = copy.deepcopy(critics).requires_grad_(False)
    log_alpha = torch.tensor(-1.5, requires_grad=True)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=5e-4, foreach=True)
    opt_critic = torch.optim.Adam(critics.parameters(), lr=5e-4, foreach=True)
    opt_alpha = torch.optim.Adam([log_alpha], lr=3e-4)
    online, lagged = list(critics.parameters()), list(targets.parameters())

    envs = Reachers(NUM_ENVS, seed=3)
    obs, returns, start = envs.obs(), [], time.perf_counter()
    for step in range(1, UPDATES + 1):
        with torch.no_grad():
            act = actor(torch.from_numpy(obs))[0].numpy()
        nxt, rew, _ = envs.step(act)
        memory.add(obs, act, rew, nxt)
        obs = envs.obs()
        returns.append(rew.mean())

        idx, (o, a, r, o2, w) = memory.sample(BATCH, beta=0.4 + 0.6 * step / UPDATES)
        alpha = log_alpha.detach().exp()
        with torch.no_grad():
            a2, logp2 = actor(o2)
            x2 = torch.cat([o2, a2], 1)
            y = r + GAMMA * (torch.min(targets[0](x2), targets[1](x2)).squeeze(1) - alpha * logp2)
        x = torch.cat([o, a], 1)
        err1, err2 = q1(x).squeeze(1) - y, q2(x).squeeze(1) - y
        loss_q = (w * (err1**2 + err2**2)).mean()
        opt_critic.zero_grad()
        loss_q.backward()
        opt_critic.step()
        memory.update(idx, 0.5 * (err1.detach().abs() + err2.detach().abs()).numpy() + 1e-3)

        critics.requires_grad_(False)
        a_new, logp = actor(o)
        xa = torch.cat([o, a_new], 1)
        loss_pi = (alpha * logp - torch.min(q1(xa), q2(xa)).squeeze(1)).mean()
        opt_actor.zero_grad()
        loss_pi.backward()
        opt_actor.step()
        critics.requires_grad_(True)

        opt_alpha.zero_grad()
        (-log_alpha * (logp.detach() - ACT_DIM).mean()).backward()
        opt_alpha.step()
        torch._foreach_lerp_(lagged, [p.detach() for p in online], TAU)

        if step % 200 == 0:
            rate = step / (time.perf_counter() - start)
            print(
                f"update {step:5d}  reward {np.mean(returns[-200:]):+.3f}  q loss {loss_q.item():.4f}  "
                f"alpha {alpha.item():.3f}  {rate:.1f} updates/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
