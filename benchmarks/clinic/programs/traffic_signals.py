# /// clinic
# expect = ["PD06.awaited-pause"]
# stratum = "twins"
# domain = "traffic signal control with PPO and driver threads"
# ///
"""Signal plans for a corridor of junctions, learned with PPO.

Eight simulated corridors run in threads. The threads send what they observe to one policy server, which answers several of
them with one forward pass; when all corridors have delivered their piece of traffic, the learner updates the policy.
"""

import queue
import sys
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


CORRIDORS = 8
JUNCTIONS = 12
HORIZON = 16
UPDATES = 280
EPOCHS = 3
GAMMA, LAM, CLIP = 0.97, 0.95, 0.2
SERVER_WAIT = 0.003  # here
SERVER_BATCH = 16  # sick here
SERVER_BATCH = CORRIDORS  # well


class Corridor:
    """Queues of cars on four approaches of every junction; a phase per junction lets two of them go."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.cars = self.rng.poisson(4, (JUNCTIONS, 4)).astype(np.float32)
        self.phase = np.zeros(JUNCTIONS, dtype=np.int64)
        self.demand = self.rng.uniform(0.2, 0.9, (JUNCTIONS, 4))

    def observe(self):
        return np.concatenate([self.cars.ravel() / 20.0, self.phase.astype(np.float32)])

    def step(self, phase):
        lost = (phase != self.phase).astype(np.float32)
        rate = np.zeros((JUNCTIONS, 4), dtype=np.float32)
        rate[phase == 0, :2] = 3.0
        rate[phase == 1, 2:] = 3.0
        gone = np.minimum(self.cars, rate - rate * 0.5 * lost[:, None])
        self.cars -= gone
        self.cars[1:, 0] += 0.6 * gone[:-1, 0]
        self.cars += self.rng.poisson(self.demand)
        np.minimum(self.cars, 40.0, out=self.cars)
        self.phase = phase
        return -float(self.cars.mean()) / 10.0


class SignalPolicy(nn.Module):
    def __init__(self, hidden=512):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(JUNCTIONS * 5, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.phases = nn.Linear(hidden, JUNCTIONS * 2)
        self.value = nn.Linear(hidden, 1)

    def forward(self, obs):
        hidden = self.body(obs)
        return Categorical(logits=self.phases(hidden).view(-1, JUNCTIONS, 2)), self.value(hidden).squeeze(-1)


class PolicyServer(threading.Thread):
    def __init__(self, policy, max_batch, max_wait):
        super().__init__(daemon=True)
        self.policy, self.max_batch, self.max_wait = policy, max_batch, max_wait
        self.requests = queue.Queue()

    def collect(self):
        batch = [self.requests.get()]
        deadline = time.monotonic() + self.max_wait
        while len(batch) < self.max_batch:  # here
            try:
                batch.append(self.requests.get(timeout=max(0.0, deadline - time.monotonic())))  # here
            except queue.Empty:
                break
        return batch

    @torch.no_grad()
    def run(self):
        while True:
            batch = self.collect()
            dist, value = self.policy(torch.from_numpy(np.stack([obs for obs, _ in batch])))
            phase = dist.sample()
            logp = dist.log_prob(phase).sum(-1)
            for i, (_, reply) in enumerate(batch):
                reply.put((phase[i].numpy(), logp[i], value[i]))


class Driver(threading.Thread):
    def __init__(self, number, server, done):
        super().__init__(daemon=True)
        self.env = Corridor(100 + number)
        self.server, self.done = server, done
        self.go, self.reply = queue.Queue(), queue.Queue()

    def ask(self, obs):
        self.server.requests.put((obs, self.reply))
        return self.reply.get()

    def run(self):
        while True:
            self.go.get()
            rows = []
            for _ in range(HORIZON):
                obs = self.env.observe()
                phase, logp, value = self.ask(obs)
                rows.append((obs, phase, logp, value, self.env.step(phase)))
            self.done.put((rows, self.ask(self.env.observe())[2]))


def make_batch(pieces):
    """Generalised advantages, for all corridors at once."""
    obs, phase, logp, value, reward = zip(*[zip(*rows) for rows, _ in pieces])
    obs = torch.from_numpy(np.array(obs))
    phase = torch.from_numpy(np.array(phase))
    logp = torch.stack([torch.stack(row) for row in logp])
    value = torch.stack([torch.stack(row) for row in value])
    reward = torch.tensor(reward)
    following = torch.stack([last for _, last in pieces])
    advantage, running = torch.zeros_like(reward), torch.zeros(len(pieces))
    for t in reversed(range(HORIZON)):
        running = reward[:, t] + GAMMA * following - value[:, t] + GAMMA * LAM * running
        advantage[:, t] = running
        following = value[:, t]
    returns = advantage + value
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    return [x.flatten(0, 1) for x in (obs, phase, logp, advantage, returns)], reward.mean().item()


def improve(policy, optimizer, batch):
    obs, phase, old, advantage, returns = batch
    for _ in range(EPOCHS):
        dist, value = policy(obs)
        ratio = (dist.log_prob(phase).sum(-1) - old).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        loss = 0.5 * (value - returns).pow(2).mean() - gain - 0.003 * dist.entropy().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return loss.item()


def main():
    torch.manual_seed(3)
    policy = SignalPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    server = PolicyServer(policy, SERVER_BATCH, SERVER_WAIT)  # here
    server.start()
    done = queue.Queue()
    drivers = [Driver(i, server, done) for i in range(CORRIDORS)]
    for driver in drivers:
        driver.start()
    for update in range(1, UPDATES + 1):
        for driver in drivers:
            driver.go.put(True)
        batch, reward = make_batch([done.get() for _ in drivers])
        loss = improve(policy, optimizer, batch)
        if update % 20 == 0:
            print(f"update {update}: reward {reward:.3f} loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
