# /// clinic
# expect = ["PD10.rebuilt-by-cat", "PD15.growing-tensor"]
# stratum = "twins"
# domain = "rowing blade strokes"
# ///
"""Double DQN that trims the blade of a rowing ergometer: pitch and catch timing, one decision for each stroke."""

import argparse
import copy
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

SAMPLES = 48
CHANNELS = 8
ACTIONS = ("hold", "pitch up", "pitch down", "catch earlier", "catch later")


class Ergometer:
    """One stroke is a window of 48 samples of 8 sensor channels; the reward is the run of the boat."""

    def __init__(self, seed, race=60):
        self.rng = np.random.default_rng(seed)
        self.phase = np.linspace(0, 2 * np.pi, SAMPLES, dtype=np.float32)
        self.harmonics = np.arange(1, CHANNELS + 1, dtype=np.float32)[:, None]
        self.race = race
        self.reset()

    def reset(self):
        self.stroke = 0
        self.pitch, self.catch = self.rng.normal(0, 1.0, 2)
        self.wind = self.rng.normal(0, 0.5)
        return self.sense()

    def sense(self):
        wave = np.sin(self.harmonics * self.phase + self.catch) / self.harmonics
        wave = wave + 0.3 * self.pitch * np.cos(self.phase) + 0.2 * self.wind
        wave += self.rng.normal(0, 0.05, wave.shape)
        return torch.from_numpy(wave.astype(np.float32).ravel())

    def step(self, action):
        self.pitch += {1: 0.2, 2: -0.2}.get(action, 0.0)
        self.catch += {3: -0.2, 4: 0.2}.get(action, 0.0)
        self.wind = 0.95 * self.wind + self.rng.normal(0, 0.1)
        self.pitch += self.rng.normal(0, 0.03)
        self.stroke += 1
        run = 1.0 - 0.5 * (self.pitch - self.wind) ** 2 - 0.5 * self.catch**2
        done = self.stroke >= self.race
        return self.sense(), float(max(run, -3.0)), done


class ReplayBuffer:
    def __init__(self, capacity, width):
        self.capacity = capacity
        self.size = 0
        self.obs = torch.zeros(0, width)  # sick
        self.next_obs = torch.zeros(0, width)  # sick
        self.act = torch.zeros(0, dtype=torch.long)  # sick
        self.reward, self.done = torch.zeros(0), torch.zeros(0)  # sick
        self.obs = torch.zeros(capacity, width)  # well
        self.next_obs = torch.zeros(capacity, width)  # well
        self.act = torch.zeros(capacity, dtype=torch.long)  # well
        self.reward, self.done = torch.zeros(capacity), torch.zeros(capacity)  # well
        self.at = 0  # well

    def add(self, obs, act, reward, next_obs, done):
        """Takes a batch of transitions; the oldest ones leave when the buffer is full."""
        self.obs = torch.cat([self.obs, obs])[-self.capacity :]  # sick here
        self.next_obs = torch.cat([self.next_obs, next_obs])[-self.capacity :]  # sick here
        self.act = torch.cat([self.act, act])[-self.capacity :]  # sick
        self.reward = torch.cat([self.reward, reward])[-self.capacity :]  # sick
        self.done = torch.cat([self.done, done])[-self.capacity :]  # sick
        where = (self.at + torch.arange(len(obs))) % self.capacity  # well
        self.obs[where], self.next_obs[where] = obs, next_obs  # well
        self.act[where], self.reward[where], self.done[where] = act, reward, done  # well
        self.at = (self.at + len(obs)) % self.capacity  # well
        self.size = min(self.size + len(obs), self.capacity)

    def sample(self, n):
        i = torch.randint(self.size, (n,))
        return self.obs[i], self.act[i], self.reward[i], self.next_obs[i], self.done[i]


class DuelingNet(nn.Module):
    def __init__(self, width, hidden, actions):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.value = nn.Linear(hidden, 1)
        self.advantage = nn.Linear(hidden, actions)

    def forward(self, x):
        h = self.trunk(x)
        a = self.advantage(h)
        return self.value(h) + a - a.mean(dim=1, keepdim=True)


class Coxswain:
    def __init__(self, args):
        self.args = args
        self.width = SAMPLES * CHANNELS
        self.online = DuelingNet(self.width, args.hidden, len(ACTIONS))
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=args.lr)
        self.memory = ReplayBuffer(args.capacity, self.width)
        self.rng = np.random.default_rng(args.seed)

    def recorded_sessions(self, env, n):
        """Strokes of earlier sessions with a random coxswain fill the memory before training."""
        rows, obs = [], env.reset()
        for _ in range(n):
            action = int(self.rng.integers(len(ACTIONS)))
            following, reward, done = env.step(action)
            rows.append((obs, action, reward, following, float(done)))
            obs = env.reset() if done else following
        obs, act, reward, following, done = zip(*rows)
        self.memory.add(
            torch.stack(obs), torch.tensor(act), torch.tensor(reward), torch.stack(following), torch.tensor(done)
        )

    @torch.no_grad()
    def choose(self, obs, epsilon):
        if self.rng.random() < epsilon:
            return int(self.rng.integers(len(ACTIONS)))
        return int(self.online(obs.unsqueeze(0)).argmax())

    def update(self):
        obs, act, reward, following, done = self.memory.sample(self.args.batch)
        with torch.no_grad():
            best = self.online(following).argmax(dim=1, keepdim=True)
            future = self.target(following).gather(1, best).squeeze(1)
            wanted = reward + self.args.gamma * (1 - done) * future
        value = self.online(obs).gather(1, act.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(value, wanted)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), 10.0)
        self.optimizer.step()
        return loss.detach()

    def race(self, env):
        obs, done, run = env.reset(), False, 0.0
        while not done:
            obs, reward, done = env.step(self.choose(obs, 0.0))
            run += reward
        return run / env.race


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--strokes", type=int, default=2400)
    p.add_argument("--recorded", type=int, default=4000)
    p.add_argument("--capacity", type=int, default=20_000)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--gamma", type=float, default=0.95)
    p.add_argument("--sync-every", type=int, default=200)
    p.add_argument("--race-every", type=int, default=400)
    p.add_argument("--seed", type=int, default=8)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    env, regatta = Ergometer(args.seed), Ergometer(args.seed + 1)
    cox = Coxswain(args)
    cox.recorded_sessions(env, args.recorded)

    obs, losses = env.reset(), []
    began = time.perf_counter()
    for stroke in range(1, args.strokes + 1):
        action = cox.choose(obs, epsilon=max(0.05, 1.0 - 2.0 * stroke / args.strokes))
        following, reward, done = env.step(action)
        act, gain, over = torch.tensor([action]), torch.tensor([reward]), torch.tensor([float(done)])
        cox.memory.add(obs[None], act, gain, following[None], over)
        obs = env.reset() if done else following
        losses.append(cox.update())
        if stroke % args.sync_every == 0:
            cox.target.load_state_dict(cox.online.state_dict())
        if stroke % args.race_every == 0:
            recent = torch.stack(losses[-args.race_every :]).mean().item()
            print(f"stroke {stroke}: loss {recent:.4f}, run for each stroke {cox.race(regatta):.3f}")
    rate = args.strokes / (time.perf_counter() - began)
    print(f"{rate:.1f} strokes/s")


if __name__ == "__main__":
    main()
