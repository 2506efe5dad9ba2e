# /// clinic
# expect = ["PD10.list-conversion"]
# stratum = "twins"
# domain = "inventory control"
# ///
"""Trains a double DQN agent that decides how many spare parts a workshop orders each day."""

import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

HISTORY = 18
PARTS = 8
OBS = HISTORY * PARTS + 2 * PARTS
ACTIONS = 1 + 2 * PARTS
STEPS = 2200
BATCH = 128


class Workshop:
    """Demand of each part has a weekly rhythm; orders arrive the next day, empty shelves cost money."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.phase = self.rng.uniform(0, 2 * np.pi, PARTS)
        self.level = self.rng.uniform(0.4, 1.2, PARTS)

    def reset(self):
        self.day = 0
        self.stock = np.full(PARTS, 6.0, dtype=np.float32)
        self.arriving = np.zeros(PARTS, dtype=np.float32)
        self.demands = np.zeros((HISTORY, PARTS), dtype=np.float32)
        return self.observe()

    def observe(self):
        return np.concatenate([self.demands.ravel() / 3, self.stock / 10, self.arriving / 5])

    def step(self, action):
        self.stock += self.arriving
        self.arriving[:] = 0
        order_cost = 0.0
        if action > 0:
            part, large = divmod(action - 1, 2)
            amount = 8.0 if large else 3.0
            self.arriving[part] = amount
            order_cost = 0.5 + 0.05 * amount
        rhythm = 1 + 0.8 * np.sin(2 * np.pi * self.day / 7 + self.phase)
        demand = self.rng.poisson(self.level * rhythm * 0.5).astype(np.float32)
        missed = np.maximum(demand - self.stock, 0).sum()
        self.stock = np.clip(self.stock - demand, 0, 25)
        self.demands = np.roll(self.demands, -1, axis=0)
        self.demands[-1] = demand
        self.day += 1
        reward = 1.0 - missed - order_cost - 0.01 * self.stock.sum()
        return self.observe(), float(reward), self.day >= 60


class ReplayBuffer:
    def __init__(self, capacity):
        self.capacity = capacity
        self.items = []
        self.head = 0

    def push(self, *transition):
        if len(self.items) < self.capacity:
            self.items.append(transition)
        else:
            self.items[self.head] = transition
            self.head = (self.head + 1) % self.capacity

    def sample(self, n):
        obs, actions, rewards, next_obs, dones = zip(*random.sample(self.items, n))
        obs = torch.tensor(obs, dtype=torch.float32)  # sick here
        obs = torch.from_numpy(np.stack(obs))  # well
        next_obs = torch.tensor(next_obs, dtype=torch.float32)  # sick here
        next_obs = torch.from_numpy(np.stack(next_obs))  # well
        actions = torch.tensor(actions, dtype=torch.int64)
        rewards = torch.tensor(rewards, dtype=torch.float32)
        dones = torch.tensor(dones, dtype=torch.float32)
        return obs, actions, rewards, next_obs, dones


class QNet(nn.Module):
    def __init__(self, width=400):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(OBS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.value = nn.Linear(width, 1)
        self.advantage = nn.Linear(width, ACTIONS)

    def forward(self, obs):
        h = self.trunk(obs)
        adv = self.advantage(h)
        return self.value(h) + adv - adv.mean(dim=1, keepdim=True)


class Agent:
    def __init__(self):
        self.online, self.target = QNet(), QNet()
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=3e-4)
        self.gamma = 0.95

    @torch.no_grad()
    def act(self, obs, epsilon):
        if random.random() < epsilon:
            return random.randrange(ACTIONS)
        return int(self.online(torch.from_numpy(obs).unsqueeze(0)).argmax())

    def learn(self, buffer):
        obs, actions, rewards, next_obs, dones = buffer.sample(BATCH)  # here
        with torch.no_grad():
            best = self.online(next_obs).argmax(dim=1, keepdim=True)
            future = self.target(next_obs).gather(1, best).squeeze(1)
            wanted = rewards + self.gamma * (1 - dones) * future
        q = self.online(obs).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(q, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()


def main():
    random.seed(0)
    torch.manual_seed(0)
    env, agent, buffer = Workshop(seed=4), Agent(), ReplayBuffer(20_000)

    obs = env.reset()
    for _ in range(1000):
        action = random.randrange(ACTIONS)
        next_obs, reward, done = env.step(action)
        buffer.push(obs, action, reward, next_obs, done)
        obs = env.reset() if done else next_obs

    obs, total, returns, start = env.reset(), 0.0, [], None
    for step in range(1, STEPS + 1):
        epsilon = max(0.05, 1.0 - step / 1200)
        action = agent.act(obs, epsilon)
        next_obs, reward, done = env.step(action)
        buffer.push(obs, action, reward, next_obs, done)
        total += reward
        obs = next_obs
        if done:
            returns.append(total)
            obs, total = env.reset(), 0.0
        agent.learn(buffer)
        if step % 200 == 0:
            agent.target.load_state_dict(agent.online.state_dict())
            print(f"step {step} mean return of the last episodes {np.mean(returns[-5:]):.2f}")
        if step == 5:
            start = time.perf_counter()

    rate = (STEPS - 5) / (time.perf_counter() - start)
    print(f"{rate:.2f} steps/s")


if __name__ == "__main__":
    main()
