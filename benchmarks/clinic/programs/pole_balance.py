# /// clinic
# stratum = "decoys"
# domain = "reinforcement learning"
# ///
"""Policy gradient for a pole on a cart. There is one rig, so every update uses the one episode just played."""

import time
from collections import deque

import numpy as np
import torch
from torch import nn


class Rig:
    """Cart and pole, Euler steps of 20 ms, in NumPy."""

    def __init__(self, seed, limit=160):
        self.rng, self.limit = np.random.default_rng(seed), limit

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, size=4)
        self.age = 0
        return self.state.astype(np.float32)

    def step(self, push):
        x, v, angle, spin = self.state
        force = 10.0 if push else -10.0
        sin, cos = np.sin(angle), np.cos(angle)
        temp = (force + 0.05 * spin**2 * sin) / 1.1
        bend = (9.8 * sin - cos * temp) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
        pull = temp - 0.05 * bend * cos / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * pull, angle + 0.02 * spin, spin + 0.02 * bend])
        self.age += 1
        fallen = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state.astype(np.float32), 1.0, fallen or self.age >= self.limit


class Policy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, hidden), nn.Tanh())
        self.act = nn.Linear(hidden, 1)
        self.value = nn.Linear(hidden, 1)

    def forward(self, state):
        h = self.trunk(state)
        return self.act(h).squeeze(-1), self.value(h).squeeze(-1)

    @torch.inference_mode()
    def choose(self, state, dice):
        push = self.act(self.trunk(torch.from_numpy(state)))
        return dice < 1 / (1 + np.exp(-push.item()))


def play(rig, policy, rng):
    states, pushes, rewards = [], [], []
    state, over = rig.reset(), False
    while not over:
        push = policy.choose(state, rng.random())
        states.append(state)
        pushes.append(push)
        state, reward, over = rig.step(push)
        rewards.append(reward)
    return np.stack(states), np.array(pushes, dtype=np.float32), rewards


def returns(rewards, discount=0.98):
    out, running = np.empty(len(rewards), dtype=np.float32), 0.0
    for i in reversed(range(len(rewards))):
        running = rewards[i] + discount * running
        out[i] = running
    return out


def update(policy, optimizer, states, pushes, gains):
    push, value = policy(states)
    edge = gains - value
    chosen = nn.functional.binary_cross_entropy_with_logits(push, pushes, reduction="none")
    centred = (edge.detach() - edge.detach().mean()) / (edge.detach().std() + 1e-6)
    loss = (chosen * centred).mean() + 0.02 * edge.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main(episodes=1500, skip=30):
    torch.manual_seed(3)
    rng = np.random.default_rng(3)
    rig, policy = Rig(seed=4), Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=4e-3, fused=True)
    lengths, counted, begun = deque(maxlen=100), 0, None
    for episode in range(episodes):
        if episode == skip:
            begun = time.perf_counter()
        states, pushes, rewards = play(rig, policy, rng)
        update(
            policy, optimizer, torch.from_numpy(states), torch.from_numpy(pushes), torch.from_numpy(returns(rewards))
        )
        lengths.append(len(rewards))
        counted += begun is not None
        if (episode + 1) % 250 == 0:
            print(f"episode {episode + 1}: {np.mean(lengths):.1f} steps upright")
    print(f"{counted / (time.perf_counter() - begun):.2f} episodes/s")


if __name__ == "__main__":
    main()
