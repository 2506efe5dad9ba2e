# /// clinic
# expect = ["PD10"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""Trains a PPO agent to balance a batch of simulated poles."""

import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ENVS = 48
HORIZON = 64
HIDDEN = 128
EPOCHS = 4
MINIBATCH = 768
GAMMA, LAMBDA = 0.99, 0.95
CLIP = 0.2
UPDATES = 200
WARMUP = 20


class Poles:
    def __init__(self, gen):
        self.gen = gen
        self.state = self.fresh(ENVS)

    def fresh(self, n):
        return (torch.rand(n, 4, generator=self.gen) - 0.5) * 0.1

    def step(self, action):
        x, v, a, w = self.state.unbind(1)
        force = (action * 2 - 1).float() * 10.0
        acc = 9.8 * torch.sin(a) - torch.cos(a) * force / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * force, a + 0.02 * w, w + 0.02 * acc], 1)
        done = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 0.2)
        self.state = torch.where(done[:, None], self.fresh(ENVS), self.state)
        return self.state, torch.ones(ENVS), done.float()


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh())
        self.policy = nn.Linear(HIDDEN, 2)
        self.critic = nn.Linear(HIDDEN, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.policy(h), self.critic(h).squeeze(-1)


@torch.no_grad()
def rollout(agent, poles):
    rows = []
    obs = poles.state
    for _ in range(HORIZON):
        logits, value = agent(obs)
        dist = Categorical(logits=logits, validate_args=False)
        action = dist.sample()
        following, reward, done = poles.step(action)
        rows.append((obs, action, dist.log_prob(action), value, reward, done))
        obs = following
    return [torch.stack(column) for column in zip(*rows)] + [agent(obs)[1]]


def advantages(reward, value, done, last):
    value = torch.cat([value, last[None]])
    out = torch.zeros_like(reward)
    for e in range(ENVS):  # sick
        carry = 0.0  # sick
        for t in reversed(range(HORIZON)):  # sick
            alive = 1.0 - done[t, e].item()  # sick here
            delta = reward[t, e].item() + GAMMA * value[t + 1, e].item() * alive - value[t, e].item()  # sick
            carry = delta + GAMMA * LAMBDA * alive * carry  # sick
            out[t, e] = carry  # sick
    carry = torch.zeros(ENVS)  # well
    for t in reversed(range(HORIZON)):  # well
        alive = 1.0 - done[t]  # well
        delta = reward[t] + GAMMA * value[t + 1] * alive - value[t]  # well
        carry = delta + GAMMA * LAMBDA * alive * carry  # well
        out[t] = carry  # well
    return out


def improve(agent, optimizer, obs, action, old, adv, target):
    for _ in range(EPOCHS):
        for pick in torch.randperm(len(obs)).split(MINIBATCH):
            logits, value = agent(obs[pick])
            ratio = (F.log_softmax(logits, -1).gather(1, action[pick, None]).squeeze(1) - old[pick]).exp()
            gain = torch.min(ratio * adv[pick], ratio.clamp(1 - CLIP, 1 + CLIP) * adv[pick])
            loss = -gain.mean() + 0.5 * F.mse_loss(value, target[pick])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def main():
    torch.manual_seed(0)
    agent = ActorCritic()
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, fused=True)
    poles = Poles(torch.Generator().manual_seed(1))
    for update in range(UPDATES):
        if update == WARMUP:
            start = time.perf_counter()
        obs, action, old, value, reward, done, last = rollout(agent, poles)
        adv = advantages(reward, value, done, last)
        target = adv + value
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        improve(agent, optimizer, *(x.flatten(0, 1) for x in (obs, action, old, adv, target)))
    rate = (UPDATES - WARMUP) / (time.perf_counter() - start)
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
