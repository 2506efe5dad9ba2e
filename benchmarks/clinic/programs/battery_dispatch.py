# /// clinic
# expect = ["PD06.awaited-pause"]
# stratum = "twins"
# domain = "grid battery dispatch, PPO with one thread per site"
# ///
"""Learn when a grid battery beside a substation should charge and discharge.

Several simulated sites run side by side, one thread each.  They ask a small policy
service for their next action; the learner improves the policy with PPO on the
rollouts that the sites hand back.
"""

import queue
import threading
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


SITES = 8
HORIZON = 16
UPDATES = 220
ACTIONS = np.linspace(-1.0, 1.0, 5)
HISTORY = 24
OBSERVATION = HISTORY + 4


class Battery:
    """One battery that trades against a noisy day-ahead price."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.hour = int(self.random.integers(24))
        self.charge = 0.5
        self.prices = np.array([self.quote(self.hour - k) for k in range(HISTORY)])

    def quote(self, hour):
        daily = np.sin(2 * np.pi * (hour - 7) / 24) + 0.5 * np.sin(4 * np.pi * hour / 24)
        return 1.0 + 0.6 * daily + 0.15 * self.random.standard_normal()

    def observe(self):
        phase = 2 * np.pi * self.hour / 24
        state = (self.charge, np.sin(phase), np.cos(phase), self.prices.mean())
        return np.concatenate([self.prices, state]).astype(np.float32)

    def act(self, action):
        flow = float(np.clip(0.2 * ACTIONS[action], -self.charge, 1.0 - self.charge))
        reward = -flow * (self.prices[0] - 1.0) - 0.02 * abs(flow)
        self.charge += 0.95 * flow if flow > 0 else flow
        self.hour = (self.hour + 1) % 24
        self.prices = np.concatenate([[self.quote(self.hour)], self.prices[:-1]])
        return self.observe(), reward


class Policy(nn.Module):
    def __init__(self, width=448):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(OBSERVATION, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.actor = nn.Linear(width, len(ACTIONS))
        self.critic = nn.Linear(width, 1)

    def forward(self, observation):
        hidden = self.body(observation)
        return self.actor(hidden), self.critic(hidden).squeeze(-1)


class PolicyService(threading.Thread):
    """Answers the sites' requests with the current policy, several at a time."""

    def __init__(self, policy, max_batch, max_wait):
        super().__init__(daemon=True)
        self.policy = policy
        self.max_batch = max_batch
        self.max_wait = max_wait
        self.inbox = queue.Queue()

    def collect(self):
        requests = [self.inbox.get()]
        deadline = time.monotonic() + self.max_wait
        while len(requests) < self.max_batch:  # here
            left = deadline - time.monotonic()
            try:
                requests.append(self.inbox.get(timeout=max(left, 0.0)))  # here
            except queue.Empty:
                break
        return requests

    def run(self):
        while True:
            requests = self.collect()
            observations = torch.from_numpy(np.stack([observation for observation, _ in requests]))
            with torch.inference_mode():
                logits, values = self.policy(observations)
                log_probs = F.log_softmax(logits, dim=-1)
                actions = torch.multinomial(log_probs.exp(), 1)
                chosen = log_probs.gather(1, actions).squeeze(1)
            answers = zip(actions.squeeze(1).tolist(), chosen.tolist(), values.tolist())
            for (_, reply), answer in zip(requests, answers):
                reply.put(answer)


def run_site(number, service, orders, rollouts):
    battery, reply = Battery(number), queue.Queue()
    observation = battery.observe()
    while orders.get():
        steps = []
        for _ in range(HORIZON):
            service.inbox.put((observation, reply))
            action, log_prob, value = reply.get()
            following, reward = battery.act(action)
            steps.append((observation, action, log_prob, value, reward))
            observation = following
        rollouts.put(steps)


def advantages(steps, gamma=0.97, lam=0.9):
    rewards = np.array([step[4] for step in steps])
    values = np.array([step[3] for step in steps])
    ahead = np.append(values[1:], values[-1])
    deltas, running = rewards + gamma * ahead - values, 0.0
    result = np.zeros(len(steps), dtype=np.float32)
    for t in reversed(range(len(steps))):
        running = deltas[t] + gamma * lam * running
        result[t] = running
    return result


def improve(policy, optimizer, rollouts, epochs=8):
    steps = [step for rollout in rollouts for step in rollout]
    observations = torch.from_numpy(np.stack([step[0] for step in steps]))
    actions = torch.tensor([step[1] for step in steps])
    old = torch.tensor([step[2] for step in steps])
    values = torch.tensor([step[3] for step in steps])
    advantage = torch.from_numpy(np.concatenate([advantages(rollout) for rollout in rollouts]))
    returns = values + advantage
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
    for _ in range(epochs):
        logits, estimate = policy(observations)
        log_probs = F.log_softmax(logits, dim=-1)
        ratio = (log_probs.gather(1, actions[:, None]).squeeze(1) - old).exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        loss = -surrogate + 0.5 * F.mse_loss(estimate, returns) - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
    return sum(step[4] for step in steps) / len(steps)


def main():
    torch.manual_seed(0)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
    service = PolicyService(policy, max_batch=64, max_wait=0.004)  # sick here
    service = PolicyService(policy, max_batch=SITES, max_wait=0.004)  # well
    service.start()
    orders, rollouts = [queue.Queue() for _ in range(SITES)], queue.Queue()
    for number in range(SITES):
        threading.Thread(target=run_site, args=(number, service, orders[number], rollouts), daemon=True).start()
    start = time.monotonic()
    for update in range(1, UPDATES + 1):
        for order in orders:
            order.put(True)
        profit = improve(policy, optimizer, [rollouts.get() for _ in range(SITES)])
        if update % 20 == 0:
            print(f"update {update:4d}  profit per hour {profit:+.4f}  {time.monotonic() - start:5.1f} s", flush=True)


if __name__ == "__main__":
    main()
