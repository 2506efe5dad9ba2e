# /// clinic
# expect = ["PD13.idle-cpus"]
# stratum = "twins"
# domain = "reinforcement learning, greenhouse climate control"
# ///
"""Trains a PPO agent that runs heating, vents and irrigation of a bank of simulated greenhouses."""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal


@dataclass
class PPOConfig:
    num_envs: int = 16
    horizon: int = 128
    epochs: int = 4
    minibatch: int = 512
    iterations: int = 34
    hidden: int = 512
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2
    lr: float = 3e-4
    entropy: float = 1e-3
    seed: int = 11


class GreenhouseBank:
    """Vectorised climate model: 12 zones per house, explicit Euler, five minutes a step."""

    zones, act_dim, episode = 12, 6, 288

    def __init__(self, n, rng):
        self.n, self.rng = n, rng
        self.obs_dim = 3 * self.zones + 6
        self.mix = (rng.random((self.act_dim, self.zones)) / self.act_dim).astype(np.float32)
        self.reset()

    def reset(self):
        self.temp = self.rng.normal(18, 2, (self.n, self.zones)).astype(np.float32)
        self.hum = self.rng.uniform(0.5, 0.8, (self.n, self.zones)).astype(np.float32)
        self.soil = self.rng.uniform(0.3, 0.6, (self.n, self.zones)).astype(np.float32)
        self.clock = self.rng.integers(0, self.episode, self.n)
        self.last = np.zeros((self.n, self.act_dim), np.float32)
        return self.observe()

    def observe(self):
        return np.concatenate([(self.temp - 20) / 5, self.hum - 0.65, self.soil - 0.45, self.last], axis=1).astype(
            np.float32
        )

    def step(self, action):
        a = np.clip(action, -1, 1).astype(np.float32)
        drive = a @ self.mix
        outside = 12 + 8 * np.sin(2 * np.pi * self.clock / self.episode)[:, None]
        noise = self.rng.normal(0, 0.1, self.temp.shape)
        self.temp = (self.temp + 0.08 * (outside - self.temp) + 2.0 * drive + noise).astype(np.float32)
        self.hum = np.clip(self.hum + 0.02 * (self.soil - 0.4) - 0.05 * drive, 0, 1)
        self.soil = np.clip(self.soil - 0.004 * self.temp / 20 + 0.05 * a[:, 1:2], 0, 1)
        reward = -np.abs(self.temp - 21).mean(1) / 5 - np.abs(self.hum - 0.65).mean(1)
        reward -= np.abs(self.soil - 0.5).mean(1) + 0.02 * np.square(a - self.last).sum(1)
        self.last = a
        self.clock += 1
        done = self.clock >= self.episode
        if done.any():
            self.clock[done] = 0
            self.temp[done] = self.rng.normal(18, 2, (int(done.sum()), self.zones))
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()

        def mlp(out):
            return nn.Sequential(
                nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, out)
            )

        self.pi, self.v = mlp(act_dim), mlp(1)
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def policy(self, obs):
        return Normal(self.pi(obs), self.log_std.exp(), validate_args=False)


@torch.no_grad()
def rollout(env, net, obs, cfg):
    T, N = cfg.horizon, cfg.num_envs
    buf = {"obs": torch.empty(T, N, env.obs_dim), "act": torch.empty(T, N, env.act_dim)}
    rew, done = np.empty((T, N), np.float32), np.empty((T, N), np.float32)
    for t in range(T):
        buf["obs"][t] = torch.from_numpy(obs)
        buf["act"][t] = net.policy(buf["obs"][t]).sample()
        obs, rew[t], done[t] = env.step(buf["act"][t].numpy())
    buf["logp"] = net.policy(buf["obs"]).log_prob(buf["act"]).sum(-1)
    values = torch.cat([net.v(buf["obs"]), net.v(torch.from_numpy(obs)).unsqueeze(0)]).squeeze(-1).numpy()
    adv, acc = np.zeros((T, N), np.float32), np.zeros(N, np.float32)
    for t in reversed(range(T)):
        delta = rew[t] + cfg.gamma * values[t + 1] * (1 - done[t]) - values[t]
        acc = delta + cfg.gamma * cfg.lam * (1 - done[t]) * acc
        adv[t] = acc
    buf["adv"], buf["ret"] = torch.from_numpy(adv), torch.from_numpy(adv + values[:-1])
    return obs, {k: b.flatten(0, 1) for k, b in buf.items()}, float(rew.mean())


def ppo_loss(net, b, cfg):
    dist = net.policy(b["obs"])
    ratio = (dist.log_prob(b["act"]).sum(-1) - b["logp"]).exp()
    adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
    surrogate = torch.min(ratio * adv, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * adv).mean()
    value = (net.v(b["obs"]).squeeze(-1) - b["ret"]).square().mean()
    return 0.5 * value - surrogate - cfg.entropy * dist.entropy().sum(-1).mean()


def main():
    cfg = PPOConfig()
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(max(torch.get_num_threads() // cfg.num_envs, 1))  # sick here
    env = GreenhouseBank(cfg.num_envs, np.random.default_rng(cfg.seed))
    net = ActorCritic(env.obs_dim, env.act_dim, cfg.hidden)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr)
    obs, step, start = env.reset(), 0, time.perf_counter()
    for it in range(cfg.iterations):
        obs, data, mean_reward = rollout(env, net, obs, cfg)
        for _ in range(cfg.epochs):
            for idx in torch.randperm(cfg.horizon * cfg.num_envs).split(cfg.minibatch):
                loss = ppo_loss(net, {k: v[idx] for k, v in data.items()}, cfg)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                step += 1
                if step == 5:
                    start = time.perf_counter()
        if it % 5 == 0:
            print(f"iteration {it:3d}  reward {mean_reward:.3f}  loss {loss.item():.4f}")
    print(f"{(step - 5) / (time.perf_counter() - start):.2f} steps/s")


if __name__ == "__main__":
    main()
