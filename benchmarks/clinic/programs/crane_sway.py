# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "TD3 control of an overhead crane's sway"
# ///
"""TD3 for an overhead crane: move the trolley to a target and damp the load's sway.

One process simulates crane cycles with the newest policy and hands them over by a queue; the learner trains from a replay buffer.
"""

import copy
import multiprocessing as mp
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


STATE, ACTION = 6, 1  # trolley offset and speed, sway and its rate, rope length, last force
HIDDEN = 400
BATCH = 1024
CYCLE = 100  # simulated steps in one crane cycle
UPDATES_PER_CYCLE = 8
CYCLES = 26
GAMMA, TAU = 0.98, 0.005
POLICY_DELAY = 2
SMOOTHING, SMOOTHING_CLIP = 0.2, 0.5


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(STATE, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, ACTION),
            nn.Tanh(),
        )

    def forward(self, state):
        return self.body(state)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(STATE + ACTION, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            nn.Linear(HIDDEN, 1),
        )

    def forward(self, state, action):
        return self.body(torch.cat([state, action], 1)).squeeze(1)


class Crane:
    """Trolley with a hanging load, Euler steps of 50 ms; rope lengths vary from cycle to cycle."""

    def reset(self, rng):
        self.x, self.v, self.sway, self.rate = rng.uniform(-4, 4), 0.0, rng.uniform(-0.1, 0.1), 0.0
        self.rope, self.force = rng.uniform(3, 9), 0.0
        return self.state()

    def state(self):
        return np.array([self.x / 4, self.v, 5 * self.sway, 5 * self.rate, self.rope / 9, self.force], dtype=np.float32)

    def step(self, force):
        acceleration = 1.5 * force - 0.2 * self.v
        swing = -(9.81 * np.sin(self.sway) + acceleration * np.cos(self.sway)) / self.rope - 0.05 * self.rate
        self.v += 0.05 * acceleration
        self.x += 0.05 * self.v
        self.rate += 0.05 * swing
        self.sway += 0.05 * self.rate
        self.force = force
        reward = -abs(self.x) / 4 - 3 * abs(self.sway) - 0.05 * force * force
        return self.state(), np.float32(reward)


def policy_numpy(weights, state):
    (w1, b1), (w2, b2), (w3, b3) = weights
    hidden = np.maximum(w1 @ state + b1, 0)
    hidden = np.maximum(w2 @ hidden + b2, 0)
    return np.tanh(w3 @ hidden + b3)


def unpack(flat):
    shapes = [(HIDDEN, STATE), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,), (ACTION, HIDDEN), (ACTION,)]
    parts, at = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        parts.append(flat[at : at + size].reshape(shape))
        at += size
    return list(zip(parts[0::2], parts[1::2]))


def simulate(cycles, shared_weights, seed):
    """Body of the simulator's process: play one crane cycle after another with the policy last published."""
    rng = np.random.default_rng(seed)
    crane = Crane()
    while True:
        weights = unpack(np.frombuffer(shared_weights, dtype=np.float32).copy())
        state, steps = crane.reset(rng), []
        for _ in range(CYCLE):
            action = np.clip(policy_numpy(weights, state) + 0.2 * rng.standard_normal(ACTION), -1, 1).astype(np.float32)
            following, reward = crane.step(float(action[0]))
            steps.append(np.concatenate([state, action, [reward], following]))
            state = following
        while cycles.full():  # sick here
            continue  # sick here
        cycles.put(np.stack(steps).astype(np.float32))


class Replay:
    def __init__(self, capacity=100_000):
        self.rows = torch.empty(capacity, 2 * STATE + ACTION + 1)
        self.size = self.at = 0

    def add(self, rows):
        places = (self.at + torch.arange(len(rows))) % len(self.rows)
        self.rows[places] = torch.from_numpy(rows)
        self.at = (self.at + len(rows)) % len(self.rows)
        self.size = min(self.size + len(rows), len(self.rows))

    def sample(self):
        picked = self.rows[torch.randint(0, self.size, (BATCH,))]
        return picked.split([STATE, ACTION, 1, STATE], dim=1)


class TD3:
    def __init__(self):
        self.policy, self.first, self.second = Policy(), Critic(), Critic()
        self.old_policy, self.old_first, self.old_second = map(copy.deepcopy, (self.policy, self.first, self.second))
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=5e-4, fused=True)
        self.critic_optimizer = torch.optim.Adam(
            [*self.first.parameters(), *self.second.parameters()], lr=1e-3, fused=True
        )

    def publish(self, shared_weights):
        flat = nn.utils.parameters_to_vector(self.policy.parameters()).detach().numpy()
        np.frombuffer(shared_weights, dtype=np.float32)[:] = flat

    @torch.no_grad()
    def follow(self):
        for new, old in ((self.policy, self.old_policy), (self.first, self.old_first), (self.second, self.old_second)):
            torch._foreach_lerp_(list(old.parameters()), list(new.parameters()), TAU)

    def update(self, number, batch):
        state, action, reward, following = batch
        with torch.no_grad():
            jitter = (SMOOTHING * torch.randn_like(action)).clamp(-SMOOTHING_CLIP, SMOOTHING_CLIP)
            next_action = (self.old_policy(following) + jitter).clamp(-1, 1)
            worst = torch.minimum(self.old_first(following, next_action), self.old_second(following, next_action))
            target = reward.squeeze(1) + GAMMA * worst
        loss = F.mse_loss(self.first(state, action), target) + F.mse_loss(self.second(state, action), target)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.critic_optimizer.step()
        if number % POLICY_DELAY == 0:
            policy_loss = -self.first(state, self.policy(state)).mean()
            self.policy_optimizer.zero_grad()
            policy_loss.backward(inputs=list(self.policy.parameters()))
            self.policy_optimizer.step()
            self.follow()
        return loss.detach()


def main():
    torch.manual_seed(3)
    agent, replay = TD3(), Replay()
    context = mp.get_context("fork")
    shared_weights = context.RawArray("f", sum(p.numel() for p in agent.policy.parameters()))
    agent.publish(shared_weights)
    cycles = context.Queue(maxsize=4)
    simulator = context.Process(target=simulate, args=(cycles, shared_weights, 11), daemon=True)  # here
    simulator.start()
    began, number = time.perf_counter(), 0
    for cycle in range(1, CYCLES + 1):
        rows = cycles.get()
        replay.add(rows)
        for _ in range(UPDATES_PER_CYCLE):
            number += 1
            loss = agent.update(number, replay.sample())
        agent.publish(shared_weights)
        if cycle % 2 == 0:
            print(
                f"cycle {cycle:3d}  return {rows[:, STATE + ACTION].sum():8.2f}  critic loss {loss.item():.4f}  "
                f"{time.perf_counter() - began:5.1f} s",
                flush=True,
            )
    simulator.terminate()
    simulator.join()


if __name__ == "__main__":
    main()
