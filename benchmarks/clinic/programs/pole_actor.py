# /// clinic
# expect = ["PD10.scalar-reads", "PD10.element-loop"]
# stratum = "twins"
# domain = "reinforcement learning"
# ///
"""Advantage actor-critic on a batch of cart-poles simulated as tensors."""

import collections
import time

import torch
from torch import nn
from torch.distributions import Categorical

ENVS, HORIZON, ITERATIONS, WARM = 256, 16, 170, 5


def physics(state, force):
    x, v, a, w = state.unbind(1)
    acc_a = (9.8 * a.sin() - a.cos() * (force + 0.05 * w * w * a.sin()) / 1.1) / (
        0.5 * (4 / 3 - 0.1 * a.cos() ** 2 / 1.1)
    )
    acc_x = (force + 0.05 * (w * w * a.sin() - acc_a * a.cos())) / 1.1
    new = torch.stack([x + 0.02 * v, v + 0.02 * acc_x, a + 0.02 * w, w + 0.02 * acc_a], 1)
    down = (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 0.21)
    return torch.where(down[:, None], torch.rand_like(new) * 0.1 - 0.05, new), down


class ActorCritic(nn.Module):
    def __init__(self, hidden=128):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi = nn.Linear(hidden, 2)
        self.v = nn.Linear(hidden, 1)

    def forward(self, s):
        h = self.trunk(s)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def rollout(net, state):
    states, actions, rewards, dones = [], [], [], []
    with torch.no_grad():
        for _ in range(HORIZON):
            dist, _ = net(state)
            action = dist.sample()
            states.append(state)
            actions.append(action)
            state, down = physics(state, action * 20.0 - 10.0)
            rewards.append(1.0 - down.float())
            dones.append(down.float())
        _, last = net(state)
    return torch.stack(states), torch.stack(actions), torch.stack(rewards), torch.stack(dones), last, state


def returns_of(rewards, dones, last, gamma=0.99):
    out, running = [], last
    for r, d in zip(reversed(rewards), reversed(dones)):
        running = r + gamma * running * (1 - d)
        out.append(running)
    return torch.stack(out[::-1])


def record(history, advantage):
    """Keeps the most recent advantages for the histogram at the end."""
    flat = advantage.detach().flatten()
    for k in range(flat.numel()):  # sick here
        history.append(flat[k].item())  # sick here
    history.extend(flat.tolist())  # well


def main():
    torch.manual_seed(7)
    net = ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=7e-4)
    state = torch.rand(ENVS, 4) * 0.1 - 0.05
    history = collections.deque(maxlen=20000)
    for it in range(ITERATIONS):
        if it == WARM:
            start = time.perf_counter()
        s, a, r, d, last, state = rollout(net, state)
        target = returns_of(r, d, last)
        for _ in range(4):
            dist, value = net(s)
            advantage = target - value
            policy = -(dist.log_prob(a) * advantage.detach()).mean()
            loss = policy + 0.5 * advantage.pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            record(history, advantage)
        if it % 50 == 0:
            print(f"iteration {it} reward {r.mean():.3f} loss {loss:.3f}")
    took = time.perf_counter() - start
    counts = torch.histc(torch.tensor(list(history)), bins=10)
    print("advantages", counts.int().tolist())
    print(f"{(ITERATIONS - WARM) * ENVS * HORIZON / took:.1f} frames/s")


if __name__ == "__main__":
    main()
