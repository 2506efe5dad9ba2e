# /// clinic
# expect = ["PD17.state-copies"]
# stratum = "twins"
# domain = "foraging egrets"
# ///
"""Where an egret should step next: Q-learning from a log of transitions, with a slow copy of the network."""

import copy
import time

import torch
from torch import nn
import torch.nn.functional as F


def network():
    return nn.Sequential(nn.Linear(24, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 6))


torch.manual_seed(0)
q = network()
target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
states, nexts = torch.randn(20000, 24), torch.randn(20000, 24)
actions, rewards = torch.randint(0, 6, (20000,)), torch.randn(20000)
began = time.perf_counter()
steps = 6000
for _ in range(steps):
    rows = torch.randint(0, 20000, (64,))
    with torch.no_grad():
        best = rewards[rows] + 0.99 * target(nexts[rows]).max(1).values
    value = q(states[rows]).gather(1, actions[rows].unsqueeze(1)).squeeze(1)
    loss = F.smooth_l1_loss(value, best)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fresh = copy.deepcopy(q)  # sick here
    with torch.no_grad():
        for old, new in zip(target.parameters(), fresh.parameters()):  # sick
            old.mul_(0.995).add_(new, alpha=0.005)  # sick
        torch._foreach_lerp_(list(target.parameters()), list(q.parameters()), 0.005)  # well
print(f"{steps / (time.perf_counter() - began):.1f} steps/s")
