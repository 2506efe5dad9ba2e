# /// clinic
# expect = ["PD12.messages-in-loop"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""PPO in a single file, on a rowing boat that has to reach a buoy against the current.

python train.py --num-envs 16 --num-steps 64
"""

import argparse
import math
import multiprocessing as mp
import random
import time

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical


def parse_args():
    p = argparse.ArgumentParser(description="proximal policy optimisation")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--num-envs", type=int, default=16)
    p.add_argument("--num-steps", type=int, default=64)
    p.add_argument("--iterations", type=int, default=120)
    p.add_argument("--update-epochs", type=int, default=4)
    p.add_argument("--minibatch-size", type=int, default=256)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--learning-rate", type=float, default=3e-4)
    p.add_argument("--gamma", type=float, default=0.99)
    p.add_argument("--gae-lambda", type=float, default=0.95)
    p.add_argument("--clip-coef", type=float, default=0.2)
    p.add_argument("--ent-coef", type=float, default=0.01)
    p.add_argument("--vf-coef", type=float, default=0.5)
    p.add_argument("--max-grad-norm", type=float, default=0.5)
    return p.parse_args()


class RowingBoat:
    """Actions: rest, pull left, pull right, pull both. Observation: buoy ahead and abeam, heading, speed, current."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def reset(self):
        self.x, self.y = self.rng.uniform(-3, 3), self.rng.uniform(-3, 3)
        self.heading, self.speed, self.t = self.rng.uniform(-math.pi, math.pi), 0.0, 0
        self.current = self.rng.uniform(-0.05, 0.05)
        return self._obs()

    def _obs(self):
        c, s = math.cos(self.heading), math.sin(self.heading)
        return (-self.x * c - self.y * s, self.x * s - self.y * c, c, s, self.speed, self.current * 10)

    def step(self, action):
        before = math.hypot(self.x, self.y)
        self.heading += 0.25 * ((action == 2) - (action == 1))
        self.speed = 0.8 * self.speed + (0.06 if action == 3 else 0.02 if action else 0.0)
        self.x += self.speed * math.cos(self.heading) + self.current
        self.y += self.speed * math.sin(self.heading)
        self.t += 1
        dist = math.hypot(self.x, self.y)
        arrived = dist < 0.4
        done = arrived or self.t >= 100 or dist > 8
        reward = before - dist + (2.0 if arrived else 0.0)
        return (self.reset() if done else self._obs()), reward, done


class SerialVectorEnv:
    def __init__(self, fns):
        self.envs = [fn() for fn in fns]

    def reset(self):
        return np.array([e.reset() for e in self.envs], dtype=np.float32)

    def step(self, actions):
        obs, rewards, dones = zip(*[e.step(a) for e, a in zip(self.envs, actions)])
        return np.array(obs, np.float32), np.array(rewards, np.float32), np.array(dones, np.float32)

    def close(self):
        pass


def env_worker(remote, fn):
    env = fn()
    while True:
        command, data = remote.recv()
        if command == "close":
            break
        remote.send(env.reset() if command == "reset" else env.step(data))


class SubprocVectorEnv:
    def __init__(self, fns):
        self.remotes, children = zip(*[mp.Pipe() for _ in fns])
        self.procs = [mp.Process(target=env_worker, args=(c, fn), daemon=True) for c, fn in zip(children, fns)]
        for proc in self.procs:
            proc.start()

    def reset(self):
        for r in self.remotes:
            r.send(("reset", None))
        return np.array([r.recv() for r in self.remotes], dtype=np.float32)

    def step(self, actions):
        for r, a in zip(self.remotes, actions):
            r.send(("step", a))
        obs, rewards, dones = zip(*[r.recv() for r in self.remotes])
        return np.array(obs, np.float32), np.array(rewards, np.float32), np.array(dones, np.float32)

    def close(self):
        for r, proc in zip(self.remotes, self.procs):
            r.send(("close", None))
            proc.join()


class Agent(nn.Module):
    def __init__(self, obs_dim, n_actions, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.actor, self.critic = nn.Linear(hidden, n_actions), nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.actor(h), validate_args=False), self.critic(h).squeeze(-1)


def rollout(envs, agent, obs, args):
    store = {k: [] for k in ("obs", "action", "logp", "value", "reward", "done")}
    with torch.no_grad():
        for _ in range(args.num_steps):
            dist, value = agent(obs)
            action = dist.sample()
            nxt, reward, done = envs.step(action.tolist())
            for k, v in zip(store, (obs, action, dist.log_prob(action), value, reward, done)):
                store[k].append(torch.as_tensor(v))
            obs = torch.from_numpy(nxt)
        last, gae = agent(obs)[1], 0.0
    batch = {k: torch.stack(v) for k, v in store.items()}
    advantages = torch.zeros_like(batch["reward"])
    for t in reversed(range(args.num_steps)):
        alive = 1 - batch["done"][t]
        delta = batch["reward"][t] + args.gamma * last * alive - batch["value"][t]
        advantages[t] = gae = delta + args.gamma * args.gae_lambda * alive * gae
        last = batch["value"][t]
    batch["advantage"], batch["return"] = advantages, advantages + batch["value"]
    return obs, {k: v.flatten(0, 1) for k, v in batch.items()}


def update(agent, optimizer, batch, args):
    n = len(batch["reward"])
    for _ in range(args.update_epochs):
        for idx in torch.randperm(n).split(args.minibatch_size):
            dist, value = agent(batch["obs"][idx])
            ratio = (dist.log_prob(batch["action"][idx]) - batch["logp"][idx]).exp()
            adv = batch["advantage"][idx]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = -torch.min(adv * ratio, adv * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)).mean()
            v_loss = 0.5 * (value - batch["return"][idx]).pow(2).mean()
            loss = pg_loss + args.vf_coef * v_loss - args.ent_coef * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()


def main():
    args = parse_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    fns = [lambda i=i: RowingBoat(args.seed * 1000 + i) for i in range(args.num_envs)]
    envs = SubprocVectorEnv(fns)  # sick here
    envs = SerialVectorEnv(fns)  # well
    obs = torch.from_numpy(envs.reset())
    agent = Agent(obs.shape[1], 4, args.hidden)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5, fused=True)
    start = time.perf_counter()
    for iteration in range(1, args.iterations + 1):
        obs, batch = rollout(envs, agent, obs, args)
        update(agent, optimizer, batch, args)
        if iteration % 20 == 0:
            print(f"iteration {iteration}  reward per step {batch['reward'].mean().item():.4f}")
    rate = args.iterations * args.num_steps * args.num_envs / (time.perf_counter() - start)
    envs.close()
    print(f"{rate:.1f} samples/s")


if __name__ == "__main__":
    main()
