# /// clinic
# expect = ["PD12.messages-in-loop"]
# stratum = "twins"
# domain = "river otters"
# ///
"""Optimal foraging of river otters by reinforcement learning (PPO, one file).

An otter moves along a river of reaches; fish deplete when it dives there and come back slowly. Moving, diving and
cold water cost energy, a night at the holt saves it. How does the learned policy share time among the reaches?
"""

import multiprocessing as mp
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

UP, DOWN, DIVE, REST = range(4)


@dataclass
class Args:
    seed: int = 4
    iterations: int = 220
    rivers: int = 8
    horizon: int = 96
    epochs: int = 3
    minibatches: int = 4
    gamma: float = 0.98
    trace: float = 0.95
    clip: float = 0.2
    entropy: float = 0.01
    lr: float = 1e-3
    check_every: int = 40


class River:
    """One river with one otter; an episode is a day of 120 bouts."""

    reaches, bouts = 12, 120

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def reset(self):
        self.carrying = [self.draw.uniform(0.2, 1.0) for _ in range(self.reaches)]
        self.fish = list(self.carrying)
        self.place, self.energy, self.bout = self.draw.randrange(self.reaches), 1.0, 0
        return self.look()

    def look(self):
        near = [self.fish[(self.place + k) % self.reaches] for k in (-2, -1, 0, 1, 2)]
        state = [*near, self.energy, self.bout / self.bouts, self.place / self.reaches, float(self.place == 0)]
        return np.array(state, dtype=np.float32)

    def step(self, action):
        self.bout += 1
        reward = -0.02
        if action == UP:
            self.place = (self.place + 1) % self.reaches
        elif action == DOWN:
            self.place = (self.place - 1) % self.reaches
        elif action == DIVE:
            caught = min(self.fish[self.place], self.draw.expovariate(4.0))
            self.fish[self.place] -= caught
            reward += caught - 0.08
        elif self.place == 0:
            reward += 0.03
        self.energy = min(1.5, self.energy + reward)
        self.fish = [f + 0.02 * (c - f) for f, c in zip(self.fish, self.carrying)]
        starved = self.energy <= 0
        done = starved or self.bout >= self.bouts
        view = self.reset() if done else self.look()
        return view, reward - float(starved), done


def run_river(pipe, seed):  # sick
    river = River(seed)  # sick
    while (message := pipe.recv()) is not None:  # sick
        pipe.send(river.reset() if message == "reset" else river.step(message))  # sick


class Rivers:
    """The same step for all rivers; views, rewards and ends come back as arrays."""

    def __init__(self, count, seed):
        self.pipes = []  # sick
        for number in range(count):  # sick
            ours, theirs = mp.Pipe()  # sick
            mp.Process(target=run_river, args=(theirs, seed + number), daemon=True).start()  # sick here
            self.pipes.append(ours)  # sick
        self.rivers = [River(seed + number) for number in range(count)]  # well

    def ask(self, messages):  # sick
        for pipe, message in zip(self.pipes, messages):  # sick
            pipe.send(message)  # sick
        return [pipe.recv() for pipe in self.pipes]  # sick here

    def reset(self):
        views = self.ask(["reset"] * len(self.pipes))  # sick
        views = [river.reset() for river in self.rivers]  # well
        return torch.from_numpy(np.stack(views))

    def step(self, actions):
        answers = self.ask(actions.tolist())  # sick
        answers = [river.step(action) for river, action in zip(self.rivers, actions.tolist())]  # well
        views, rewards, ends = zip(*answers)
        return torch.from_numpy(np.stack(views)), torch.tensor(rewards), torch.tensor(ends, dtype=torch.float32)

    def close(self):
        for pipe in self.pipes:  # sick
            pipe.send(None)  # sick
        self.rivers = []  # well


class Otter(nn.Module):
    def __init__(self, views=9, width=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(views, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(views, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy, self.value = nn.Linear(width, 4), nn.Linear(width, 1)

    def forward(self, views):
        logits = self.policy(self.actor(views))
        return Categorical(logits=logits, validate_args=False), self.value(self.critic(views)).squeeze(-1)


@torch.no_grad()
def collect(otter, rivers, view, args):
    """horizon steps in all rivers, with advantages by generalised advantage estimation."""
    rows = []
    for _ in range(args.horizon):
        policy, value = otter(view)
        action = policy.sample()
        following, reward, end = rivers.step(action)
        rows.append((view, action, policy.log_prob(action), value, reward, end))
        view = following
    views, actions, logs, values, rewards, ends = map(torch.stack, zip(*rows))
    advantages, running, after = torch.zeros_like(rewards), 0.0, otter(view)[1]
    for t in reversed(range(args.horizon)):
        surprise = rewards[t] + args.gamma * after * (1 - ends[t]) - values[t]
        running = surprise + args.gamma * args.trace * (1 - ends[t]) * running
        advantages[t], after = running, values[t]
    batch = [part.flatten(0, 1) for part in (views, actions, logs, advantages, advantages + values)]
    return view, batch, rewards.mean().item()


def improve(otter, optimizer, batch, args):
    for _ in range(args.epochs):
        for rows in torch.randperm(len(batch[0])).chunk(args.minibatches):
            views, actions, logs, advantages, returns = (part[rows] for part in batch)
            policy, value = otter(views)
            ratio = (policy.log_prob(actions) - logs).exp()
            scaled = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
            gain = torch.minimum(ratio * scaled, ratio.clamp(1 - args.clip, 1 + args.clip) * scaled).mean()
            loss = 0.5 * (value - returns).square().mean() - gain - args.entropy * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(otter.parameters(), 0.5)
            optimizer.step()


@torch.no_grad()
def day(otter, seed):
    """One day of the greedy otter: total reward and the number of reaches in which it dived."""
    river, total, end, dived = River(seed), 0.0, False, set()
    view = river.reset()
    while not end:
        action = otter(torch.from_numpy(view))[0].probs.argmax().item()
        if action == DIVE:
            dived.add(river.place)
        view, reward, end = river.step(action)
        total += reward
    return total, len(dived)


def main(args=Args()):
    torch.manual_seed(args.seed)
    rivers = Rivers(args.rivers, args.seed)
    otter = Otter()
    optimizer = torch.optim.Adam(otter.parameters(), lr=args.lr, eps=1e-5)
    view = rivers.reset()
    began = time.perf_counter()
    for iteration in range(1, args.iterations + 1):
        optimizer.param_groups[0]["lr"] = args.lr * (1 - (iteration - 1) / args.iterations)
        view, batch, reward = collect(otter, rivers, view, args)
        improve(otter, optimizer, batch, args)
        if iteration % args.check_every == 0:
            totals, reaches = zip(*(day(otter, seed) for seed in range(900, 905)))
            print(f"{iteration:4d} reward {reward:.4f} day {np.mean(totals):.2f} reaches {np.mean(reaches):.1f}")
    rate = args.iterations * args.horizon * args.rivers / (time.perf_counter() - began)
    rivers.close()
    torch.save(otter.state_dict(), "otter.pt")
    print(f"{rate:.1f} steps/s")


if __name__ == "__main__":
    main()
