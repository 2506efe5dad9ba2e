# /// clinic
# expect = ["PD14.whole-storages"]
# stratum = "twins"
# domain = "control of a pottery kiln (DDPG)"
# ///
"""Learn to fire a pottery kiln: DDPG on a simulated kiln, whose burner and damper follow a wanted temperature curve.

The state holds the readings of all thermocouples for the last minutes. A small file with the latest firing (what the kiln saw and
what the policy did) and the weights is kept beside the run, for the dashboard in the workshop.
"""

import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


KILNS = 8  # simulated side by side
SENSORS = 12
MEMORY_MINUTES = 8
STATE = SENSORS * MEMORY_MINUTES + 2
ACTIONS = 2
FIRING = 120  # minutes
UPDATES = 900
CAPACITY = 200_000


class Kiln:
    """Heat moves between the layers of ware; the burner feeds the lowest, the damper cools them all."""

    def __init__(self, generator):
        self.generator = generator
        self.reset()

    def reset(self):
        self.minute = 0
        self.heat = torch.full((KILNS, SENSORS), 20.0) + torch.randn(KILNS, SENSORS, generator=self.generator)
        self.readings = self.heat.repeat(1, MEMORY_MINUTES)
        self.load = 0.7 + 0.6 * torch.rand(KILNS, 1, generator=self.generator)
        return self.state()

    def wanted(self):
        return 20.0 + min(self.minute, 90) * 11.0

    def state(self):
        clock = torch.full((KILNS, 1), self.minute / FIRING)
        target = torch.full((KILNS, 1), self.wanted() / 1000)
        return torch.cat([self.readings / 1000, clock, target], 1)

    def step(self, action):
        burner, damper = action[:, :1] * 0.5 + 0.5, action[:, 1:] * 0.5 + 0.5
        up = torch.roll(self.heat, 1, 1)
        up[:, 0] = self.heat[:, 0]
        flow = 0.2 * (up - self.heat)
        loss = (0.004 + 0.02 * damper) * (self.heat - 20)
        self.heat = self.heat + flow - loss
        self.heat[:, :3] += 25 * burner / self.load
        noisy = self.heat + torch.randn(self.heat.shape, generator=self.generator)
        self.readings = torch.cat([self.readings[:, SENSORS:], noisy], 1)
        self.minute += 1
        reward = -((self.heat.mean(1) - self.wanted()) / 100).abs() - 0.02 * burner.squeeze(1)
        return self.state(), reward, self.minute >= FIRING


class Replay:
    def __init__(self, capacity):
        self.states = torch.zeros(capacity, STATE)
        self.following = torch.zeros(capacity, STATE)
        self.actions = torch.zeros(capacity, ACTIONS)
        self.rewards = torch.zeros(capacity)
        self.capacity, self.count = capacity, 0

    def add(self, state, action, reward, following):
        first = self.count % self.capacity
        rows = slice(first, first + len(state))
        self.states[rows], self.actions[rows] = state, action
        self.rewards[rows], self.following[rows] = reward, following
        self.count += len(state)

    def sample(self, size):
        rows = torch.randint(min(self.count, self.capacity), (size,))
        return self.states[rows], self.actions[rows], self.rewards[rows], self.following[rows]

    def latest(self, minutes=30):
        last = (self.count - 1) % self.capacity + 1
        rows = slice(max(0, last - minutes * KILNS), last)
        found = {"states": self.states[rows], "actions": self.actions[rows], "rewards": self.rewards[rows]}  # here
        found = {name: part.clone() for name, part in found.items()}  # well
        return found


def network(inputs, outputs, width=192):
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class Agent:
    def __init__(self):
        self.actor, self.slow_actor = network(STATE, ACTIONS), network(STATE, ACTIONS)
        self.critic, self.slow_critic = network(STATE + ACTIONS, 1), network(STATE + ACTIONS, 1)
        self.slow_actor.load_state_dict(self.actor.state_dict())
        self.slow_critic.load_state_dict(self.critic.state_dict())
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=2e-4, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3, fused=True)

    @torch.no_grad()
    def act(self, state, noise=0.15):
        action = torch.tanh(self.actor(state))
        return (action + noise * torch.randn_like(action)).clamp(-1, 1)

    def learn(self, state, action, reward, following):
        with torch.no_grad():
            later = self.slow_critic(torch.cat([following, torch.tanh(self.slow_actor(following))], 1)).squeeze(1)
            goal = reward + 0.97 * later
        critic_loss = F.smooth_l1_loss(self.critic(torch.cat([state, action], 1)).squeeze(1), goal)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        actor_loss = -self.critic(torch.cat([state, torch.tanh(self.actor(state))], 1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward(inputs=list(self.actor.parameters()))
        self.actor_optimizer.step()
        with torch.no_grad():
            for slow, fast in ((self.slow_actor, self.actor), (self.slow_critic, self.critic)):
                torch._foreach_lerp_(list(slow.parameters()), list(fast.parameters()), 0.005)
        return critic_loss.detach()


def main():
    torch.manual_seed(2)
    generator = torch.Generator().manual_seed(4)
    kiln, replay, agent = Kiln(generator), Replay(CAPACITY), Agent()
    state = kiln.reset()
    start, rewards = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "latest_firing.pt")
        for update in range(1, UPDATES + 1):
            action = agent.act(state)
            following, reward, over = kiln.step(action)
            replay.add(state, action, reward, following)
            rewards.append(reward.mean())
            state = kiln.reset() if over else following
            loss = agent.learn(*replay.sample(2048))
            if update % 10 == 0:
                torch.save(
                    {"update": update, "actor": agent.actor.state_dict(), "latest": replay.latest()}, report
                )  # here
            if update % FIRING == 0:
                mean = torch.stack(rewards).mean()
                print(
                    f"update {update:4d}  reward {mean:.3f}  critic loss {loss:.4f}  {update / (time.time() - start):.1f} updates/s"
                )
                rewards.clear()


if __name__ == "__main__":
    main()
