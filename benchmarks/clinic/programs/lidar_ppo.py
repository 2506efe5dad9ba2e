# /// clinic
# expect = ["PD15.growing-container", "PD15.growing-tensor"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""PPO for point-robot navigation: a vectorised NumPy world with round obstacles and a ring of range sensors."""

import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


ENVS = 32
HORIZON = 32
BEAMS = 64
OBSTACLES = 4
ITERATIONS = 360
EPOCHS = 4
MINIBATCHES = 4
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2


class NavigationWorld:
    """the robot accelerates in the plane, has to reach a goal and not to touch the obstacles"""

    obs_dim = 6 + BEAMS

    def __init__(self, count, seed):
        self.rng = np.random.default_rng(seed)
        self.count = count
        angle = np.linspace(0, 2 * np.pi, BEAMS, endpoint=False)
        self.beams = np.stack([np.cos(angle), np.sin(angle)]).astype(np.float32)
        self.position = np.zeros((count, 2), np.float32)
        self.velocity = np.zeros((count, 2), np.float32)
        self.goal = np.zeros((count, 2), np.float32)
        self.obstacles = np.zeros((count, OBSTACLES, 2), np.float32)
        self.age = np.zeros(count, np.int64)
        self.reset(np.ones(count, bool))

    def reset(self, which):
        n = int(which.sum())
        self.position[which] = self.rng.uniform(-4, 4, (n, 2))
        self.velocity[which] = 0
        self.goal[which] = self.rng.uniform(-4, 4, (n, 2))
        self.obstacles[which] = self.rng.uniform(-4, 4, (n, OBSTACLES, 2))
        self.age[which] = 0

    def observe(self):
        offset = self.obstacles - self.position[:, None]
        along = offset @ self.beams
        miss = (offset**2).sum(-1, keepdims=True) - along**2
        hit = (along > 0) & (miss < 0.25)
        ranges = np.where(hit, along - np.sqrt(np.maximum(0.25 - miss, 0)), 5.0).min(axis=1)
        return np.concatenate([self.position, self.velocity, self.goal - self.position, ranges], axis=1).astype(
            np.float32
        )

    def step(self, action):
        before = np.linalg.norm(self.goal - self.position, axis=1)
        self.velocity = 0.9 * self.velocity + 0.1 * np.clip(action, -1, 1)
        self.position = np.clip(self.position + 0.3 * self.velocity, -5, 5)
        after = np.linalg.norm(self.goal - self.position, axis=1)
        touch = np.linalg.norm(self.obstacles - self.position[:, None], axis=2).min(axis=1) < 0.5
        reached = after < 0.4
        self.age += 1
        done = reached | (self.age >= 120)
        reward = (before - after) + 5.0 * reached - 0.2 * touch
        self.reset(done)
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


class ObservationScaler:
    """standardises observations with the statistics of everything seen so far"""

    def __init__(self, dim):
        self.mean = np.zeros(dim, np.float32)
        self.std = np.ones(dim, np.float32)
        self.seen = np.zeros((0, dim), np.float32)
        self.n, self.centre, self.m2 = 0, np.zeros(dim), np.zeros(dim)

    def update(self, batch):
        self.seen = np.concatenate([self.seen, batch])  # sick here
        self.mean = self.seen.mean(axis=0)  # sick here
        self.std = self.seen.std(axis=0) + 1e-4  # sick here
        count, mean = len(batch), batch.mean(axis=0)  # well
        delta, total = mean - self.centre, self.n + count  # well
        self.m2 += batch.var(axis=0) * count + delta**2 * self.n * count / total  # well
        self.centre += delta * count / total  # well
        self.n = total  # well
        self.mean = self.centre.astype(np.float32)  # well
        self.std = np.sqrt(self.m2 / total).astype(np.float32) + 1e-4  # well

    def __call__(self, obs):
        return torch.from_numpy(np.clip((obs - self.mean) / self.std, -8, 8))


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, hidden=96):
        super().__init__()

        def net(out):
            return nn.Sequential(
                nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, out)
            )

        self.actor, self.critic = net(2), net(1)
        self.log_std = nn.Parameter(torch.full((2,), -0.5))

    def log_prob(self, mean, action):
        return (-0.5 * ((action - mean) / self.log_std.exp()).square() - self.log_std).sum(-1)


@torch.no_grad()
def rollout(world, obs, policy, scaler):
    raw, states, actions, log_probs, values, rewards, dones = [], [], [], [], [], [], []
    for _ in range(HORIZON):
        state = scaler(obs)
        mean = policy.actor(state)
        action = mean + policy.log_std.exp() * torch.randn_like(mean)
        raw.append(obs)
        states.append(state)
        actions.append(action)
        log_probs.append(policy.log_prob(mean, action))
        values.append(policy.critic(state).squeeze(-1))
        obs, reward, done = world.step(action.numpy())
        rewards.append(torch.from_numpy(reward))
        dones.append(torch.from_numpy(done))
    value, advantage, advantages = policy.critic(scaler(obs)).squeeze(-1), 0.0, []
    for t in reversed(range(HORIZON)):
        alive = 1.0 - dones[t]
        advantage = rewards[t] + GAMMA * alive * value - values[t] + GAMMA * LAMBDA * alive * advantage
        value = values[t]
        advantages.append(advantage)
    advantages = torch.cat(advantages[::-1])
    data = (torch.cat(states), torch.cat(actions), torch.cat(log_probs), advantages, advantages + torch.cat(values))
    return obs, np.concatenate(raw), data, torch.cat(rewards).mean()


def update(policy, optimizer, data):
    for _ in range(EPOCHS):
        for rows in torch.randperm(ENVS * HORIZON).chunk(MINIBATCHES):
            state, action, old_log_prob, advantage, target = (part[rows] for part in data)
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
            ratio = (policy.log_prob(policy.actor(state), action) - old_log_prob).exp()
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            loss = -gain + 0.5 * F.mse_loss(policy.critic(state).squeeze(-1), target) - 1e-3 * policy.log_std.sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
            optimizer.step()


def main():
    torch.manual_seed(21)
    world = NavigationWorld(ENVS, seed=21)
    scaler = ObservationScaler(world.obs_dim)
    policy = ActorCritic(world.obs_dim)
    optimizer = torch.optim.Adam(policy.parameters(), lr=4e-4, fused=True)
    obs = world.observe()
    scaler.update(obs)
    start, recent = time.perf_counter(), []
    for iteration in range(1, ITERATIONS + 1):
        obs, raw, data, reward = rollout(world, obs, policy, scaler)
        update(policy, optimizer, data)
        scaler.update(raw)  # here
        recent.append(reward)
        if iteration % 25 == 0:
            speed = 1000 * (time.perf_counter() - start) / iteration
            print(
                f"iteration {iteration:4d}  reward {torch.stack(recent).mean():+.4f}  {speed:.1f} ms/iteration",
                flush=True,
            )
            recent.clear()


if __name__ == "__main__":
    main()
