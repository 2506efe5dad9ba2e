# /// clinic
# expect = ["PD06"]
# stratum = "twins"
# domain = "reinforcement learning (actor threads, learner)"
# ///
"""Train an actor-critic on a batch of simulated pendulums with background actors."""

import copy
import math
import queue
import threading
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ACTORS = 2
ENVS = 192
LEARN = 80
UNROLL = 16
HIDDEN = 256
ACTIONS = 5
STEPS = 600
WARMUP = 20


class Pendulums:
    def __init__(self, n, seed):
        self.g = torch.Generator().manual_seed(seed)
        self.angle = (torch.rand(n, generator=self.g) * 2 - 1) * math.pi
        self.speed = torch.zeros(n)

    def observe(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 8], -1)

    def step(self, action):
        torque = action - (ACTIONS - 1) / 2
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * torque)).clamp(-8, 8)
        self.angle = torch.remainder(self.angle + 0.05 * self.speed + math.pi, 2 * math.pi) - math.pi
        return -(self.angle.square() + 0.1 * self.speed.square() + 0.001 * torque.square())


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(3, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh()
        )
        self.pi, self.v = nn.Linear(HIDDEN, ACTIONS), nn.Linear(HIDDEN, 1)

    def forward(self, obs):
        h = self.body(obs)
        return self.pi(h), self.v(h).squeeze(-1)


class Actor(threading.Thread):
    def __init__(self, learner, seed, rollouts):
        super().__init__(daemon=True)
        self.learner, self.rollouts = learner, rollouts
        self.envs = Pendulums(ENVS, seed)
        self.policy = learner.policy  # sick
        self.policy = copy.deepcopy(learner.policy)  # well

    @torch.no_grad()
    def act(self, obs):
        with self.learner.lock:  # sick here
            logits, _ = self.policy(obs)  # sick
        logits, _ = self.policy(obs)  # well
        return torch.distributions.Categorical(logits=logits, validate_args=False).sample()

    def collect(self):
        self.policy.load_state_dict(self.learner.policy.state_dict())  # well
        rows = []
        for _ in range(UNROLL):
            obs = self.envs.observe()
            action = self.act(obs)
            rows.append((obs, action, self.envs.step(action)))
        return [torch.stack(part) for part in zip(*rows)] + [self.envs.observe()]

    def run(self):
        for _ in range(self.rollouts):
            self.learner.inbox.put(self.collect())


class Learner:
    def __init__(self, gamma=0.97):
        self.policy = Policy()
        self.opt = torch.optim.RMSprop(self.policy.parameters(), lr=3e-4)
        self.lock = threading.Lock()
        self.inbox = queue.Queue(maxsize=4)
        self.gamma = gamma

    def descend(self, obs, action, reward, last):
        logits, value = self.policy(torch.cat([obs, last[None]]))
        ret, returns = value[-1].detach(), []
        for r in reward.flip(0):
            ret = r + self.gamma * ret
            returns.append(ret)
        advantage = torch.stack(returns[::-1]) - value[:-1]
        logp = F.log_softmax(logits[:-1], -1)
        chosen = logp.gather(-1, action[..., None]).squeeze(-1)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -(chosen * advantage.detach()).mean() + 0.5 * advantage.square().mean() - 0.01 * entropy
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.opt.step()
        return loss.item()

    def update(self):
        keep = torch.randperm(ENVS)[:LEARN]
        obs, action, reward, last = self.inbox.get()
        rollout = obs[:, keep], action[:, keep], reward[:, keep], last[keep]
        with self.lock:  # sick
            return self.descend(*rollout)  # sick
        return self.descend(*rollout)  # well


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    learner = Learner()
    actors = [Actor(learner, seed, STEPS // ACTORS) for seed in range(ACTORS)]
    for actor in actors:
        actor.start()
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        learner.update()
    print(f"{(STEPS - WARMUP) / (time.perf_counter() - start):.1f} steps/s")


if __name__ == "__main__":
    main()
