# /// clinic
# expect = ["PD10.element-loop"]
# stratum = "twins"
# domain = "canal boat tiller logs"
# ///
# # Tiller hand for a narrowboat
#
# Actor-critic (PPO) that learns to hold a 57 ft narrowboat in the channel. The cross wind and the bends come from
# tiller logs: one record every 2 s of curvature, wind and engine speed, here synthetic.

# %% imports
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.manual_seed(3)

# %% settings
BOATS = 24
HORIZON = 32
ITERATIONS = 480
EPOCHS = 3
MINIBATCHES = 4
GAMMA, LAMBDA = 0.985, 0.95
CLIP = 0.2
ENTROPY = 0.01
VALUE = 0.5
LR = 7e-4
TILLER = torch.tensor([-0.12, -0.03, 0.0, 0.03, 0.12])  # change of the tiller angle, rad per record

# %% the logs


def make_logs(trips=64, records=900):
    """Curvature of the cut, cross wind and engine speed along a trip."""
    noise = torch.randn(trips, 3, records + 60)
    kernel = torch.ones(3, 1, 61) / 61**0.5
    smooth = F.conv1d(noise, kernel, groups=3)
    curvature = 0.012 * smooth[:, 0]
    wind = 0.02 * smooth[:, 1] + 0.01 * torch.randn(trips, records)
    speed = 1.3 + 0.15 * torch.tanh(smooth[:, 2])
    return torch.stack([curvature, wind, speed], dim=-1)


LOGS = make_logs()
print("logs", tuple(LOGS.shape))

# %% the cut


class Cut:
    """A set of boats that follow their logs; a boat that touches the bank starts on another trip."""

    def __init__(self, boats):
        self.boats = boats
        self.trip = torch.randint(0, LOGS.shape[0], (boats,))
        self.record = torch.randint(0, LOGS.shape[1] // 2, (boats,))
        self.state = torch.zeros(boats, 3)  # offset from mid channel, heading, tiller angle

    def observe(self):
        now = LOGS[self.trip, self.record]
        ahead = LOGS[self.trip, (self.record + 8).clamp(max=LOGS.shape[1] - 1)]
        return torch.cat([self.state, now * 10, ahead[:, :1] * 10], dim=-1)

    def step(self, action):
        curvature, wind, speed = LOGS[self.trip, self.record].unbind(-1)
        offset, heading, tiller = self.state.unbind(-1)
        tiller = (tiller + TILLER[action]).clamp(-0.6, 0.6)
        heading = heading - 0.25 * tiller * speed - curvature * speed * 2
        offset = offset + heading * speed + wind
        self.record = self.record + 1
        aground = offset.abs() > 2.5
        done = aground | (self.record >= LOGS.shape[1] - 1)
        reward = 0.1 - 0.05 * offset.square() - 0.1 * tiller.square() - 2.0 * aground.float()
        keep = (~done).float().unsqueeze(-1)
        self.state = torch.stack([offset, heading, tiller], dim=-1) * keep
        self.trip = torch.where(done, torch.randint(0, LOGS.shape[0], (self.boats,)), self.trip)
        self.record = torch.where(done, torch.randint(0, LOGS.shape[1] // 2, (self.boats,)), self.record)
        return reward, done.float()


# %% the hand


class TillerHand(nn.Module):
    def __init__(self, features=7, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(features, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.policy = nn.Linear(width, len(TILLER))
        self.value = nn.Linear(width, 1)
        nn.init.orthogonal_(self.policy.weight, 0.01)
        nn.init.zeros_(self.policy.bias)

    def forward(self, seen):
        h = self.body(seen)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


# %% generalised advantage estimates


def estimate_advantages(rewards, values, dones, last_value):
    horizon, boats = rewards.shape
    advantages = torch.zeros_like(rewards)
    for boat in range(boats):  # sick here
        running, ahead = torch.zeros(()), last_value[boat]  # sick
        for t in reversed(range(horizon)):  # sick here
            alive = 1.0 - dones[t, boat]  # sick
            delta = rewards[t, boat] + GAMMA * ahead * alive - values[t, boat]  # sick
            running = delta + GAMMA * LAMBDA * alive * running  # sick
            advantages[t, boat] = running  # sick
            ahead = values[t, boat]  # sick
    running, ahead = torch.zeros(boats), last_value  # well
    for t in reversed(range(horizon)):  # well
        alive = 1.0 - dones[t]  # well
        delta = rewards[t] + GAMMA * ahead * alive - values[t]  # well
        running = delta + GAMMA * LAMBDA * alive * running  # well
        advantages[t] = running  # well
        ahead = values[t]  # well
    return advantages, advantages + values


# %% one round on the cut


@torch.no_grad()
def collect(hand, cut):
    rows = []
    for _ in range(HORIZON):
        seen = cut.observe()
        policy, value = hand(seen)
        action = policy.sample()
        reward, done = cut.step(action)
        rows.append((seen, action, policy.log_prob(action), value, reward, done))
    seen, action, log_prob, value, reward, done = (torch.stack(column) for column in zip(*rows))
    _, last_value = hand(cut.observe())
    advantage, target = estimate_advantages(reward, value, done, last_value)
    flat = [seen.flatten(0, 1)] + [column.flatten() for column in (action, log_prob, advantage, target)]
    return flat, reward.mean().item()


def update(hand, optimizer, batch):
    size = len(batch[0]) // MINIBATCHES
    for _ in range(EPOCHS):
        for pick in torch.randperm(len(batch[0])).split(size):
            seen, action, old, advantage, target = (column[pick] for column in batch)
            policy, value = hand(seen)
            ratio = (policy.log_prob(action) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            loss = -gain + VALUE * F.mse_loss(value, target) - ENTROPY * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(hand.parameters(), 0.5)
            optimizer.step()
    return loss.item()


# %% training
hand, cut = TillerHand(), Cut(BOATS)
optimizer = torch.optim.Adam(hand.parameters(), lr=LR)
began = time.perf_counter()
for iteration in range(ITERATIONS):
    batch, reward = collect(hand, cut)
    loss = update(hand, optimizer, batch)
    if iteration % 50 == 0:
        print(f"{iteration:4d} reward {reward:+.4f} loss {loss:.4f}")
rate = ITERATIONS * BOATS * HORIZON / (time.perf_counter() - began)
print(f"{rate:.1f} records/s")
