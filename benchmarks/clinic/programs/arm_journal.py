# /// clinic
# stratum = "out-of-scope"
# domain = "reinforcement learning"
# ///
"""Off-policy control of a reaching arm; every batch of transitions goes to a compressed audit journal first."""

import lzma
import tempfile
import time

import torch
from torch import nn


class Journal:
    """Append-only record, one compressed member for each entry."""

    def __init__(self, path):
        self.file = open(path, "wb")
        self.bytes = 0

    def write(self, *tensors):
        raw = b"".join(t.contiguous().numpy().tobytes() for t in tensors)
        packed = lzma.compress(raw, preset=1)
        self.file.write(len(packed).to_bytes(4, "little") + packed)
        self.bytes += len(packed)


class Arm:
    def __init__(self, count):
        self.q = torch.zeros(count, 6)
        self.goal = torch.randn(count, 6)

    def observe(self):
        return torch.cat([self.q.sin(), self.q.cos(), self.goal], 1)

    def act(self, torque):
        self.q = self.q + 0.05 * torque + 0.01 * torch.randn_like(self.q)
        reward = -(self.q - self.goal).square().mean(1)
        return self.observe(), reward


def mlp(i, o, w=256):
    return nn.Sequential(nn.Linear(i, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, o))


def main(arms=512, steps=350, warm=5):
    torch.manual_seed(3)
    arm, actor, critic = Arm(arms), mlp(18, 6), mlp(24, 1)
    opt_a = torch.optim.Adam(actor.parameters(), lr=3e-4)
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3)
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(f"{folder}/journal.bin")
        obs = arm.observe()
        for step in range(steps):
            if step == warm:
                start = time.perf_counter()
            with torch.no_grad():
                torque = actor(obs).tanh() + 0.1 * torch.randn(arms, 6)
                after, reward = arm.act(torque)
                target = reward + 0.95 * critic(torch.cat([after, actor(after).tanh()], 1)).squeeze(1)
            journal.write(obs, torque, after, reward)
            loss_c = (critic(torch.cat([obs, torque], 1)).squeeze(1) - target).square().mean()
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
            loss_a = -critic(torch.cat([obs, actor(obs).tanh()], 1)).mean()
            opt_a.zero_grad()
            loss_a.backward()
            opt_a.step()
            obs = after
            if step % 50 == 49:
                print(f"step {step + 1} critic {loss_c.item():.3f} reward {reward.mean().item():.3f}")
        took = time.perf_counter() - start
        print("journal", journal.bytes // 1024, "KiB")
        journal.file.close()
    print(f"{(steps - warm) * arms / took:.1f} transitions/s")


if __name__ == "__main__":
    main()
