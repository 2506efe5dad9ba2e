# /// clinic
# stratum = "decoys"
# domain = "reinforcement learning"
# ///
"""One boat in one current: a recurrent policy steers it, each command decides what the next observation is."""

import math
import random
import time

import torch
from torch import nn

HIDDEN, HORIZON, EPISODES, WARM = 64, 64, 130, 4


class Boat:
    def __init__(self):
        self.x, self.y, self.heading, self.t = 0.0, 0.0, random.uniform(-1, 1), 0

    def observe(self):
        return torch.tensor([[self.x, self.y, math.sin(self.heading), math.cos(self.heading), self.t / HORIZON]])

    def steer(self, command):
        self.t += 1
        self.heading += 0.3 * (command - 1)
        current = 0.05 * math.sin(0.2 * self.t + self.x)
        before = math.hypot(self.x - 2, self.y - 1)
        self.x += 0.06 * math.cos(self.heading)
        self.y += 0.06 * math.sin(self.heading) + current
        return before - math.hypot(self.x - 2, self.y - 1)


class Pilot(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = nn.GRUCell(5, HIDDEN)
        self.command = nn.Linear(HIDDEN, 3)

    def forward(self, obs, h):
        h = self.memory(obs, h)
        return self.command(h), h


def episode(pilot):
    """The command drawn from the newest memory moves the boat before anything else can be seen."""
    boat, h = Boat(), torch.zeros(1, HIDDEN)
    logps, rewards = [], []
    for _ in range(HORIZON):
        logits, h = pilot(boat.observe(), h)
        logp = logits.log_softmax(1)
        choice = torch.multinomial(logp.detach().exp(), 1)
        logps.append(logp.gather(1, choice))
        rewards.append(boat.steer(choice.item()))
    return torch.cat(logps).squeeze(1), rewards


def discounted(rewards, gamma=0.97):
    out, run = [], 0.0
    for r in reversed(rewards):
        run = r + gamma * run
        out.append(run)
    out = torch.tensor(out[::-1])
    return (out - out.mean()) / (out.std() + 1e-6)


def main():
    random.seed(0)
    torch.manual_seed(0)
    pilot = Pilot()
    opt = torch.optim.Adam(pilot.parameters(), lr=2e-3)
    frames = 0
    for number in range(EPISODES * 4):
        if number == WARM:
            frames, start = 0, time.perf_counter()
        logps, rewards = episode(pilot)
        loss = -(logps * discounted(rewards)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        frames += len(rewards)
        if number % 200 == 0:
            print(f"episode {number} gained {sum(rewards):.3f}")
    print(f"{frames / (time.perf_counter() - start):.1f} frames/s")


if __name__ == "__main__":
    main()
