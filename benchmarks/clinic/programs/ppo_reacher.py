# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""PPO for a planar point-mass reacher, many environments stepped at once in NumPy."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal


NUM_ENVS = 32
HORIZON = 64
ITERATIONS = 250
EPOCHS = 4
MINIBATCHES = 4
GAMMA = 0.98
LAMBDA = 0.95
CLIP = 0.2
ENTROPY_COEF = 0.003
VALUE_COEF = 0.5


class VectorReacher:
    """A mass with drag is pushed towards a target; every environment has its own target."""

    obs_dim = 6
    act_dim = 2

    def __init__(self, num_envs, max_steps=100, seed=0):
        self.n = num_envs
        self.max_steps = max_steps
        self.rng = np.random.default_rng(seed)
        self.pos = np.zeros((num_envs, 2), dtype=np.float32)
        self.vel = np.zeros((num_envs, 2), dtype=np.float32)
        self.target = np.zeros((num_envs, 2), dtype=np.float32)
        self.age = np.zeros(num_envs, dtype=np.int64)

    def _reset_where(self, mask):
        k = int(mask.sum())
        if k:
            self.pos[mask] = self.rng.uniform(-1, 1, (k, 2))
            self.vel[mask] = 0.0
            self.target[mask] = self.rng.uniform(-1, 1, (k, 2))
            self.age[mask] = 0

    def observe(self):
        return np.concatenate([self.pos, self.vel, self.target], axis=1)

    def reset(self):
        self._reset_where(np.ones(self.n, dtype=bool))
        self.age[:] = self.rng.integers(0, self.max_steps, self.n)
        return self.observe()

    def step(self, action):
        force = np.clip(action, -1.0, 1.0)
        self.vel = 0.9 * self.vel + 0.1 * force
        self.pos = np.clip(self.pos + 0.2 * self.vel, -1.5, 1.5)
        self.age += 1
        dist = np.linalg.norm(self.pos - self.target, axis=1)
        reward = (-dist - 0.05 * np.square(force).sum(axis=1)).astype(np.float32)
        done = (self.age >= self.max_steps) | (dist < 0.02)
        self._reset_where(done)
        return self.observe(), reward, done.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden=128):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, act_dim)
        )
        self.critic = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )
        self.log_std = nn.Parameter(torch.full((act_dim,), -0.5))

    def policy(self, obs):
        return Normal(self.actor(obs), self.log_std.exp(), validate_args=False)

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


class RolloutStorage:
    def __init__(self, horizon, num_envs, obs_dim, act_dim):
        self.obs = torch.zeros(horizon, num_envs, obs_dim)
        self.actions = torch.zeros(horizon, num_envs, act_dim)
        self.log_probs = torch.zeros(horizon, num_envs)
        self.rewards = torch.zeros(horizon, num_envs)
        self.dones = torch.zeros(horizon, num_envs)
        self.values = torch.zeros(horizon + 1, num_envs)
        self.advantages = torch.zeros(horizon, num_envs)
        self.returns = torch.zeros(horizon, num_envs)

    def put(self, t, obs, action, log_prob, value, reward, done):
        self.obs[t] = obs
        self.actions[t] = action
        self.log_probs[t] = log_prob
        self.values[t] = value
        self.rewards[t] = torch.from_numpy(reward)
        self.dones[t] = torch.from_numpy(done)

    def finish(self, last_value, gamma, lam):
        self.values[-1] = last_value
        horizon, num_envs = self.rewards.shape
        for i in range(num_envs):  # sick here
            gae = 0.0  # sick here
            for t in reversed(range(horizon)):  # sick here
                alive = 1.0 - self.dones[t, i]  # sick here
                delta = self.rewards[t, i] + gamma * self.values[t + 1, i] * alive - self.values[t, i]  # sick here
                gae = delta + gamma * lam * alive * gae  # sick here
                self.advantages[t, i] = gae  # sick here
        gae = torch.zeros(num_envs)  # well
        alive = 1.0 - self.dones  # well
        delta = self.rewards + gamma * self.values[1:] * alive - self.values[:-1]  # well
        for t in reversed(range(horizon)):  # well
            gae = delta[t] + gamma * lam * alive[t] * gae  # well
            self.advantages[t] = gae  # well
        torch.add(self.advantages, self.values[:-1], out=self.returns)

    def minibatches(self, count):
        total = self.rewards.numel()
        flat = [x.flatten(0, 1) for x in (self.obs, self.actions, self.log_probs, self.advantages, self.returns)]
        for index in torch.randperm(total).chunk(count):
            yield [x[index] for x in flat]


@torch.no_grad()
def collect(env, obs, model, storage):
    for t in range(HORIZON):
        dist = model.policy(obs)
        action = dist.sample()
        next_obs, reward, done = env.step(action.numpy())
        storage.put(t, obs, action, dist.log_prob(action).sum(-1), model.value(obs), reward, done)
        obs = torch.from_numpy(next_obs)
    storage.finish(model.value(obs), GAMMA, LAMBDA)  # here
    return obs


def update(model, optimizer, storage):
    for _ in range(EPOCHS):
        for obs, action, old_log_prob, adv, ret in storage.minibatches(MINIBATCHES):
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            dist = model.policy(obs)
            ratio = (dist.log_prob(action).sum(-1) - old_log_prob).exp()
            policy_loss = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            value_loss = F.mse_loss(model.value(obs), ret)
            loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * dist.entropy().sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    return policy_loss.detach(), value_loss.detach()


def main():
    torch.manual_seed(1)
    env = VectorReacher(NUM_ENVS, seed=1)
    model = ActorCritic(env.obs_dim, env.act_dim)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    storage = RolloutStorage(HORIZON, NUM_ENVS, env.obs_dim, env.act_dim)
    obs = torch.from_numpy(env.reset())
    start = time.time()
    for iteration in range(1, ITERATIONS + 1):
        obs = collect(env, obs, model, storage)
        policy_loss, value_loss = update(model, optimizer, storage)
        if iteration % 25 == 0:
            print(
                f"iter {iteration:4d}  reward {storage.rewards.mean().item():.3f}  policy {policy_loss.item():+.4f}  "
                f"value {value_loss.item():.4f}  {time.time() - start:.1f}s",
                flush=True,
            )


if __name__ == "__main__":
    main()
