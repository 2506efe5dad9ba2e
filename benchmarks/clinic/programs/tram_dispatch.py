# /// clinic
# expect = ["PD13.idle-cpus"]
# stratum = "twins"
# domain = "dispatching trams"
# ///
"""Learns by PPO to dispatch trams on a ring line.

The simulator runs many ring lines side by side in numpy. At each tick the dispatcher tells the next
tram to go on, to hold or to pass a stop; passengers who wait cost, passengers carried pay.
"""

import random
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn import functional as F

LINES, STOPS, TRAMS, ACTIONS = 64, 24, 4, 3
HORIZON, UPDATES = 32, 64
EPOCHS, MINIBATCH = 4, 256
GAMMA, LAMBDA, CLIP = 0.98, 0.95, 0.2


def make_reproducible(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # sick here


class RingLines:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.rows = np.arange(LINES)
        self.demand = self.rng.gamma(2.0, 0.05, (LINES, STOPS))
        self.waiting = np.zeros((LINES, STOPS))
        self.place = self.rng.integers(0, STOPS, (LINES, TRAMS))
        self.load = np.zeros((LINES, TRAMS))
        self.tick = 0

    def observe(self):
        turn = self.tick % TRAMS
        here = self.place[:, turn]
        ahead = (here[:, None] + np.arange(STOPS)) % STOPS
        others = np.zeros((LINES, STOPS))
        for other in range(1, TRAMS):
            others[self.rows, (self.place[:, (turn + other) % TRAMS] - here) % STOPS] += 1
        parts = [self.waiting[self.rows[:, None], ahead] / 5, others, self.load / 20]
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))

    def step(self, actions):
        turn = self.tick % TRAMS
        here = self.place[:, turn]
        stops = actions != 2
        leaving = np.where(stops, self.load[:, turn] * 0.3, 0.0)
        boarding = np.minimum(self.waiting[self.rows, here], 20 - self.load[:, turn] + leaving)
        boarding = np.where(stops, boarding, 0.0)
        self.load[:, turn] += boarding - leaving
        self.waiting[self.rows, here] -= boarding
        self.place[:, turn] = (here + (actions != 1)) % STOPS
        self.waiting = np.minimum(self.waiting + self.rng.poisson(self.demand), 15)
        self.tick += 1
        return torch.from_numpy((leaving - 0.02 * self.waiting.sum(1)).astype(np.float32))


class Dispatcher(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(2 * STOPS + TRAMS, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
        )
        self.choice = nn.Linear(width, ACTIONS)
        self.value = nn.Linear(width, 1)

    def forward(self, seen):
        features = self.trunk(seen)
        return self.choice(features), self.value(features).squeeze(1)


@torch.no_grad()
def collect(lines, model):
    steps = []
    for _ in range(HORIZON):
        seen = lines.observe()
        logits, values = model(seen)
        chances = Categorical(logits=logits, validate_args=False)
        actions = chances.sample()
        rewards = lines.step(actions.numpy())
        steps.append((seen, actions, chances.log_prob(actions), values, rewards))
    seen, actions, log_probs, values, rewards = (torch.stack(part) for part in zip(*steps))
    following = torch.cat([values[1:], model(lines.observe())[1][None]])
    deltas = rewards + GAMMA * following - values
    advantages, running = torch.empty_like(deltas), torch.zeros(LINES)
    for tick in reversed(range(HORIZON)):
        running = deltas[tick] + GAMMA * LAMBDA * running
        advantages[tick] = running
    flat = [part.flatten(0, 1) for part in (seen, actions, log_probs, advantages, advantages + values)]
    return flat, rewards.mean()


def update(model, optimizer, batch):
    seen, actions, old_log_probs, advantages, returns = batch
    logits, values = model(seen)
    log_probs = F.log_softmax(logits, 1)
    ratio = (log_probs.gather(1, actions[:, None]).squeeze(1) - old_log_probs).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-6)
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages).mean()
    entropy = -(log_probs.exp() * log_probs).sum(1).mean()
    loss = 0.5 * F.mse_loss(values, returns) - gain - 0.01 * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()


def main():
    make_reproducible(17)
    lines, model = RingLines(17), Dispatcher()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, fused=True)
    incomes = []

    start = time.perf_counter()
    for _ in range(UPDATES):
        rollout, income = collect(lines, model)
        incomes.append(income)
        for _ in range(EPOCHS):
            for picked in torch.randperm(LINES * HORIZON).split(MINIBATCH):
                update(model, optimizer, [part[picked] for part in rollout])
    seconds = time.perf_counter() - start

    print(f"income per tick: first {torch.stack(incomes[:5]).mean():.3f}  last {torch.stack(incomes[-5:]).mean():.3f}")
    print(f"{UPDATES * LINES * HORIZON / seconds:.1f} samples/s")


if __name__ == "__main__":
    main()
