# /// clinic
# expect = ["PD15.growing-tensor", "PD10.rebuilt-by-cat"]
# stratum = "twins"
# domain = "charcoal kiln temperatures"
# ///
"""Learning to run the air vents of charcoal kilns from their thermocouples.

A row of simulated earth-mound kilns is burnt side by side. Each kiln reports twelve thermocouples once a minute;
the agent sees the last half hour of them and opens or closes vents so that the charge stays between 400 and 500 C
(carbonised, not burnt to ash). Double DQN with a replay memory, in the manner of our earlier batch-retort agent.
"""

import math
import time
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

PROBES = 12
MINUTES = 32
VENTS = torch.tensor([0.0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1.0])


@dataclass
class Plan:
    kilns: int = 16
    minutes: int = 900
    warm_up: int = 40
    batch: int = 256
    memory: int = 50_000
    width: int = 512
    gamma: float = 0.97
    lr: float = 3e-4
    tau: float = 0.01
    burn_length: int = 240
    report: int = 150
    seed: int = 5


class Kilns:
    """Lumped heat balance of each probe's zone: air feeds the fire, wood dries, heat leaks to its neighbours."""

    def __init__(self, n, burn_length):
        self.n, self.burn_length = n, burn_length
        self.heat = torch.empty(n, PROBES)
        self.moist = torch.empty(n, PROBES)
        self.age = torch.zeros(n)
        self.seen = torch.zeros(n, PROBES, MINUTES)
        self.draught = 0.6 + 0.4 * torch.linspace(0, math.pi, PROBES).sin()
        self.restart(torch.ones(n, dtype=torch.bool))
        self.age = torch.randint(0, burn_length, (n,)).float()

    def restart(self, which):
        k = int(which.sum())
        self.heat[which] = 150 + 60 * torch.rand(k, PROBES)
        self.moist[which] = 0.2 + 0.3 * torch.rand(k, PROBES)
        self.age[which] = 0
        self.seen[which] = (self.heat[which, :, None] - 400) / 200

    def observe(self):
        return self.seen.flatten(1).clone()

    def step(self, vent):
        air = VENTS[vent][:, None] * self.draught
        wind = 1 + 0.15 * torch.randn(self.n, 1)
        burn = 34 * air * wind * torch.sigmoid((self.heat - 180) / 60)
        drying = 14 * self.moist * (self.heat > 100)
        mixing = 0.08 * (torch.roll(self.heat, 1, 1) + torch.roll(self.heat, -1, 1) - 2 * self.heat)
        self.heat += burn - drying + mixing - 0.022 * (self.heat - 20)
        self.moist = (self.moist - 0.004 * (self.heat > 100)).clamp_min(0)
        self.seen = torch.roll(self.seen, -1, 2)
        self.seen[:, :, -1] = (self.heat + 4 * torch.randn_like(self.heat) - 400) / 200
        off = F.relu(400 - self.heat) + 2 * F.relu(self.heat - 500)
        reward = 1 - off.mean(1) / 100
        self.age += 1
        done = self.age >= self.burn_length
        following = self.observe()
        if done.any():
            self.restart(done)
        return reward, following, done.float()


class Memory:
    def __init__(self, size, width):
        self.size = size
        self.full = 0
        self.at = 0
        rows = 0  # sick
        rows = size  # well
        self.obs = torch.zeros(rows, width)
        self.following = torch.zeros(rows, width)
        self.act = torch.zeros(rows, dtype=torch.long)
        self.reward = torch.zeros(rows)
        self.done = torch.zeros(rows)

    def add(self, obs, act, reward, following, done):
        slot = (self.at + torch.arange(len(obs))) % self.size  # well
        self.obs = torch.cat([self.obs, obs])[-self.size :]  # sick here
        self.following = torch.cat([self.following, following])[-self.size :]  # sick here
        self.obs[slot] = obs  # well
        self.following[slot] = following  # well
        self.act = torch.cat([self.act, act])[-self.size :]  # sick
        self.reward = torch.cat([self.reward, reward])[-self.size :]  # sick
        self.done = torch.cat([self.done, done])[-self.size :]  # sick
        self.act[slot] = act  # well
        self.reward[slot] = reward  # well
        self.done[slot] = done  # well
        self.at = (self.at + len(obs)) % self.size
        self.full = min(self.full + len(obs), self.size)

    def sample(self, n):
        pick = torch.randint(0, self.full, (n,))
        return self.obs[pick], self.act[pick], self.reward[pick], self.following[pick], self.done[pick]


def value_net(width):
    return nn.Sequential(
        nn.Linear(PROBES * MINUTES, width),
        nn.LayerNorm(width),
        nn.SiLU(),
        nn.Linear(width, width),
        nn.SiLU(),
        nn.Linear(width, len(VENTS)),
    )


class Agent:
    def __init__(self, plan):
        self.plan = plan
        self.net = value_net(plan.width)
        self.slow = value_net(plan.width)
        self.slow.load_state_dict(self.net.state_dict())
        self.slow.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=plan.lr)
        self.memory = Memory(plan.memory, PROBES * MINUTES)

    @torch.no_grad()
    def act(self, obs, eps):
        greedy = self.net(obs).argmax(1)
        chance = torch.randint(0, len(VENTS), greedy.shape)
        return torch.where(torch.rand(len(obs)) < eps, chance, greedy)

    def learn(self):
        obs, act, reward, following, done = self.memory.sample(self.plan.batch)
        with torch.no_grad():
            best = self.net(following).argmax(1, keepdim=True)
            ahead = self.slow(following).gather(1, best).squeeze(1)
            target = reward + self.plan.gamma * (1 - done) * ahead
        value = self.net(obs).gather(1, act[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(value, target)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 10.0)
        self.optimizer.step()
        with torch.no_grad():
            for p, q in zip(self.slow.parameters(), self.net.parameters()):
                p.lerp_(q, self.plan.tau)
        return loss.item()


def burn(plan):
    torch.manual_seed(plan.seed)
    kilns = Kilns(plan.kilns, plan.burn_length)
    agent = Agent(plan)
    obs = kilns.observe()
    began, steps, losses, rewards = None, 0, [], []
    for minute in range(plan.minutes):
        eps = max(0.05, 1 - minute / (0.5 * plan.minutes))
        act = agent.act(obs, eps)
        reward, following, done = kilns.step(act)
        agent.memory.add(obs, act, reward, following, done)
        obs = kilns.observe()
        rewards.append(reward.mean().item())
        if minute < plan.warm_up:
            continue
        began = began or time.perf_counter()
        losses.append(agent.learn())
        steps += 1
        if (minute + 1) % plan.report == 0:
            last = slice(-plan.report, None)
            mean_loss = sum(losses[last]) / len(losses[last])
            print(
                f"minute {minute + 1}  eps {eps:.2f}  reward {sum(rewards[last]) / plan.report:.3f}  loss {mean_loss:.4f}"
            )
    return steps / (time.perf_counter() - began)


if __name__ == "__main__":
    rate = burn(Plan())
    print(f"{rate:.1f} steps/s")
