# /// clinic
# expect = ["PD10.element-loop", "PD10.scalar-reads"]
# stratum = "twins"
# domain = "robots"
# ///
"""Teach a four-joint planar arm to bring its tip to a goal.

The arm first moves at random to fill a store of episodes.  After that an actor and two critics learn from
the store (with goals that the arm reached later in the same episode put in place of the wanted ones), and
fresh episodes of the present actor are added between the rounds.
"""

import copy
import time

import torch
from torch import nn
import torch.nn.functional as F

JOINTS = 4
HORIZON = 40
ARMS = 32
STORE = 2048
BATCH = 256
WARM_ROUNDS = 12
ROUNDS = 20
UPDATES = 40
DISCOUNT = 0.96
SWAPPED = 0.8
REACH = 0.35
LENGTHS = torch.tensor([1.0, 0.8, 0.6, 0.4])


def tip_of(angles):
    total = angles.cumsum(-1)
    return torch.stack([(LENGTHS * total.cos()).sum(-1), (LENGTHS * total.sin()).sum(-1)], dim=-1)


def state_of(angles):
    return torch.cat([angles.cos(), angles.sin(), tip_of(angles)], dim=-1)


def reward_of(tip, goal):
    return ((tip - goal).square().sum(-1) < REACH**2).float() - 1.0


STATE = 2 * JOINTS + 2


def perceptron(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, 256),
        nn.ReLU(),
        nn.Linear(256, outputs),
    )


class Store:
    """A ring of whole episodes, one row an episode."""

    def __init__(self):
        self.states = torch.zeros(STORE, HORIZON + 1, STATE)
        self.actions = torch.zeros(STORE, HORIZON, JOINTS)
        self.tips = torch.zeros(STORE, HORIZON + 1, 2)
        self.goals = torch.zeros(STORE, 2)
        self.at = 0
        self.filled = 0

    def add(self, states, actions, tips, goals):
        rows = (self.at + torch.arange(len(goals))) % STORE
        self.states[rows] = states
        self.actions[rows] = actions
        self.tips[rows] = tips
        self.goals[rows] = goals
        self.at = (self.at + len(goals)) % STORE
        self.filled = min(self.filled + len(goals), STORE)

    def draw(self):
        rows = torch.randint(self.filled, (BATCH,))
        steps = torch.randint(HORIZON, (BATCH,))
        later = steps + 1 + (torch.rand(BATCH) * (HORIZON - steps)).long()
        swap = torch.rand(BATCH) < SWAPPED
        goals = self.goals[rows]
        rewards = torch.empty(BATCH)  # sick
        for i in range(BATCH):  # sick here
            if swap[i]:  # sick
                goals[i] = self.tips[rows[i], later[i]]  # sick
            rewards[i] = reward_of(self.tips[rows[i], steps[i] + 1], goals[i])  # sick here
        goals = torch.where(swap[:, None], self.tips[rows, later], goals)  # well
        rewards = reward_of(self.tips[rows, steps + 1], goals)  # well
        return (
            torch.cat([self.states[rows, steps], goals], dim=1),
            self.actions[rows, steps],
            rewards,
            torch.cat([self.states[rows, steps + 1], goals], dim=1),
        )


@torch.no_grad()
def play(policy):
    """One episode of all arms at once."""
    angles = 0.3 * torch.randn(ARMS, JOINTS)
    goals = tip_of(torch.randn(ARMS, JOINTS))
    states = [state_of(angles)]
    actions = []
    for _ in range(HORIZON):
        action = policy(torch.cat([states[-1], goals], dim=1))
        angles = angles + 0.15 * action
        actions.append(action)
        states.append(state_of(angles))
    states = torch.stack(states, dim=1)
    return states, torch.stack(actions, dim=1), states[..., -2:], goals


def update(store, actor, critics, old_actor, old_critics, actor_optimizer, critic_optimizer):
    now, action, reward, after = store.draw()
    with torch.no_grad():
        noise = (0.2 * torch.randn_like(action)).clamp(-0.4, 0.4)
        next_action = (old_actor(after).tanh() + noise).clamp(-1, 1)
        pair = torch.cat([after, next_action], dim=1)
        value = torch.minimum(old_critics[0](pair), old_critics[1](pair)).squeeze(1)
        wanted = (reward + DISCOUNT * value).clamp(-1 / (1 - DISCOUNT), 0.0)
    pair = torch.cat([now, action], dim=1)
    loss = sum(F.mse_loss(critic(pair).squeeze(1), wanted) for critic in critics)
    critic_optimizer.zero_grad()
    loss.backward()
    critic_optimizer.step()

    critics.requires_grad_(False)
    chosen = actor(now).tanh()
    actor_loss = -critics[0](torch.cat([now, chosen], dim=1)).mean() + 0.05 * chosen.square().mean()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
    critics.requires_grad_(True)

    with torch.no_grad():
        for old, new in ((old_actor, actor), (old_critics, critics)):
            torch._foreach_lerp_(list(old.parameters()), list(new.parameters()), 0.02)


def main():
    torch.manual_seed(3)
    actor = perceptron(STATE + 2, JOINTS)
    critics = nn.ModuleList(perceptron(STATE + 2 + JOINTS, 1) for _ in range(2))
    old_actor = copy.deepcopy(actor).requires_grad_(False)
    old_critics = copy.deepcopy(critics).requires_grad_(False)
    actor_optimizer = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
    critic_optimizer = torch.optim.Adam(critics.parameters(), lr=1e-3, fused=True)

    store = Store()
    for _ in range(WARM_ROUNDS):
        store.add(*play(lambda seen: torch.rand(len(seen), JOINTS) * 2 - 1))

    def explore(seen):
        return (actor(seen).tanh() + 0.2 * torch.randn(len(seen), JOINTS)).clamp(-1, 1)

    started = time.perf_counter()
    for _ in range(ROUNDS):
        store.add(*play(explore))
        for _ in range(UPDATES):
            update(store, actor, critics, old_actor, old_critics, actor_optimizer, critic_optimizer)
    elapsed = time.perf_counter() - started

    _, _, tips, goals = play(lambda seen: actor(seen).tanh())
    print(f"arms at their goal: {(reward_of(tips[:, -1], goals) + 1).mean():.2f}")
    print(f"{ROUNDS * UPDATES / elapsed:.1f} steps/s")


if __name__ == "__main__":
    main()
