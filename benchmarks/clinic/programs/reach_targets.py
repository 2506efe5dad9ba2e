# /// clinic
# expect = ["PD06.waits-for-lock"]
# stratum = "twins"
# domain = "robotics, off-policy reinforcement learning (TD3) with a collector thread"
# ///
"""Learn to reach targets with a six-joint desk arm, off-policy (TD3), while the arm keeps moving.

A collector thread drives the arm at 50 Hz with the newest policy and fills the replay memory; the main thread updates
the networks. The arm hangs on a half-duplex serial bus: each servo is written and read back in turn, which at 57600
baud takes about 2.8 ms per servo. `ServoBus` stands in for the real one, with the same waiting times.
"""

import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


JOINTS = 6
OBSERVATION = 3 * JOINTS + 6
LINKS = np.array([0.12, 0.20, 0.18, 0.10, 0.08, 0.05])


class ServoBus:
    """Writes a goal to each servo and reads its angle back; the host waits for the status packets."""

    SECONDS_PER_SERVO = 0.0028

    def __init__(self):
        self.angles = np.zeros(JOINTS)

    def exchange(self, goals):
        time.sleep(self.SECONDS_PER_SERVO * JOINTS)
        self.angles = self.angles + 0.8 * (goals - self.angles)
        return self.angles


class DeskArm:
    """Planar links turned by alternating axes, a target drawn anew every 60 moves."""

    def __init__(self, bus, seed):
        self.bus = bus
        self.rng = np.random.default_rng(seed)
        self.begin()

    def begin(self):
        self.moves = 0
        self.velocity = np.zeros(JOINTS)
        self.target = self.rng.uniform(-0.4, 0.4, 3)
        return self.observe()

    def tip(self):
        bend = np.cumsum(self.bus.angles)
        turn = np.cumsum(self.bus.angles[::-1])
        return np.array([LINKS @ np.cos(bend), LINKS @ np.sin(bend), 0.5 * (LINKS @ np.sin(turn))])

    def observe(self):
        angles = self.bus.angles
        parts = (np.sin(angles), np.cos(angles), self.velocity, self.target, self.tip() - self.target)
        return np.concatenate(parts).astype(np.float32)

    def move(self, action):
        before = self.bus.angles
        after = self.bus.exchange(before + 0.15 * action)
        self.velocity = after - before
        self.moves += 1
        reward = -float(np.linalg.norm(self.tip() - self.target)) - 0.01 * float(action @ action)
        return self.observe(), reward


class ReplayMemory:
    def __init__(self, capacity):
        self.rows = torch.zeros(capacity, 2 * OBSERVATION + JOINTS + 1)
        self.capacity, self.size, self.cursor = capacity, 0, 0

    def add(self, *parts):
        self.rows[self.cursor] = torch.from_numpy(np.concatenate(parts, dtype=np.float32))
        self.cursor = (self.cursor + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, count):
        rows = self.rows[torch.randint(self.size, (count,))]
        return rows.split([OBSERVATION, JOINTS, 1, OBSERVATION], dim=1)


def network(inputs, outputs, *last):
    return nn.Sequential(
        nn.Linear(inputs, 384),
        nn.LayerNorm(384),
        nn.ReLU(),
        nn.Linear(384, 384),
        nn.ReLU(),
        nn.Linear(384, outputs),
        *last,
    )


class Collector(threading.Thread):
    """Drives the arm until it is told to stop."""

    PERIOD = 0.020

    def __init__(self, policy, memory, lock):
        super().__init__(daemon=True)
        self.policy, self.memory, self.lock = policy, memory, lock
        self.arm = DeskArm(ServoBus(), seed=1)
        self.rng = np.random.default_rng(2)
        self.done = threading.Event()
        self.rewards = [0.0]

    @torch.no_grad()
    def act(self, observation):
        action = self.policy(torch.from_numpy(observation)).numpy()
        return np.clip(action + 0.2 * self.rng.standard_normal(JOINTS), -1, 1)

    def run(self):
        observation = self.arm.begin()
        while not self.done.is_set():
            due = time.monotonic() + self.PERIOD
            with self.lock:  # sick here
                action = self.act(observation)  # sick
                following, reward = self.arm.move(action)  # sick here
            with self.lock:  # well
                action = self.act(observation)  # well
            following, reward = self.arm.move(action)  # well
            self.memory.add(observation, action, [reward], following)
            self.rewards = [*self.rewards[-199:], reward]
            observation = self.arm.begin() if self.arm.moves == 60 else following
            self.done.wait(max(0.0, due - time.monotonic()))


class Learner:
    def __init__(self, memory, lock):
        self.memory, self.lock = memory, lock
        self.policy = network(OBSERVATION, JOINTS, nn.Tanh())
        self.critics = nn.ModuleList([network(OBSERVATION + JOINTS, 1) for _ in range(2)])
        self.policy_target = network(OBSERVATION, JOINTS, nn.Tanh()).requires_grad_(False)
        self.critics_target = nn.ModuleList([network(OBSERVATION + JOINTS, 1) for _ in range(2)]).requires_grad_(False)
        self.policy_target.load_state_dict(self.policy.state_dict())
        self.critics_target.load_state_dict(self.critics.state_dict())
        self.policy_optimizer = torch.optim.Adam(self.policy.parameters(), lr=3e-4, fused=True)
        self.critic_optimizer = torch.optim.Adam(self.critics.parameters(), lr=3e-4, fused=True)

    def update(self, batch=256):
        observation, action, reward, following = self.memory.sample(batch)
        with torch.no_grad():
            noise = (0.1 * torch.randn_like(action)).clamp(-0.3, 0.3)
            pair = torch.cat([following, (self.policy_target(following) + noise).clamp(-1, 1)], dim=1)
            goal = reward + 0.97 * torch.minimum(*(critic(pair) for critic in self.critics_target))
        pair = torch.cat([observation, action], dim=1)
        critic_loss = sum(F.mse_loss(critic(pair), goal) for critic in self.critics)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()

        self.critics.requires_grad_(False)
        policy_loss = -self.critics[0](torch.cat([observation, self.policy(observation)], dim=1)).mean()
        self.policy_optimizer.zero_grad()
        policy_loss.backward()
        self.critics.requires_grad_(True)
        with self.lock:  # here
            self.policy_optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(self.policy_target.parameters()), list(self.policy.parameters()), 0.005)
            torch._foreach_lerp_(list(self.critics_target.parameters()), list(self.critics.parameters()), 0.005)
        return critic_loss.detach()


def main(updates=1900):
    torch.manual_seed(0)
    memory, lock = ReplayMemory(50_000), threading.Lock()
    memory.rows[:2000] = torch.randn(2000, memory.rows.shape[1]).clamp(-1, 1)
    memory.size = memory.cursor = 2000
    learner = Learner(memory, lock)
    collector = Collector(learner.policy, memory, lock)
    collector.start()
    started = time.time()
    for update in range(1, updates + 1):
        loss = learner.update()
        if update % 200 == 0:
            reward = np.mean(collector.rewards)
            print(
                f"update {update:5d}  critic loss {loss.item():.4f}  reward {reward:.3f}  {time.time() - started:.1f} s",
                flush=True,
            )
    collector.done.set()
    collector.join()
    print(f"{memory.size - 2000} moves of the arm in {time.time() - started:.1f} s")


if __name__ == "__main__":
    main()
