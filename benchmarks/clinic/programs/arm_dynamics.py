# /// clinic
# expect = ["PD14.unchanging-content", "PD14.frequent-checkpoints"]
# stratum = "twins"
# domain = "robotics"
# ///
"""Learns a forward dynamics model of a simulated arm (states of 16 tendon-driven joints) from its own experience.

The loop is the usual one of model-based control: act a little, store the transitions, take some gradient steps on
samples of the memory, and from time to time write a checkpoint. A checkpoint also holds the latest transitions, so that
a drift of the model can be looked at afterwards (`inspect_drift.py`) without running the arm again.
"""

import math
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn


JOINTS = 16
STATE = JOINTS * 4  # angle, velocity, tendon tension, motor temperature
ARMS = 32  # simulated side by side
MEMORY = 200_000
WARM_START = 60_000
BATCH = 512
ROUNDS = 80
STEPS_PER_ROUND = 40
RECENT = 1_024
ENSEMBLE = 3
HIDDEN = 192


class Arm:
    """A batch of arms with damped joints, elastic tendons and motors that warm up."""

    def __init__(self, count: int, gen: torch.Generator):
        self.gen = gen
        self.coupling = 0.15 * torch.randn(JOINTS, JOINTS, generator=gen)
        self.angle = 0.1 * torch.randn(count, JOINTS, generator=gen)
        self.velocity = torch.zeros(count, JOINTS)
        self.tension = torch.zeros(count, JOINTS)
        self.heat = torch.zeros(count, JOINTS)

    def state(self):
        return torch.cat([self.angle, self.velocity, self.tension, self.heat], dim=1)

    def advance(self, command):
        self.tension = 0.7 * self.tension + 0.3 * command * (1.0 - 0.2 * self.heat)
        pull = self.tension - torch.sin(self.angle) + torch.tanh(self.angle @ self.coupling)
        self.velocity = 0.95 * self.velocity + 0.05 * pull
        self.angle = (self.angle + 0.05 * self.velocity).clamp(-math.pi, math.pi)
        self.heat = 0.99 * self.heat + 0.01 * command.square()
        return self.state()


class Memory:
    """Transitions in preallocated tensors, the oldest overwritten once they are full."""

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.size = 0
        self.cursor = 0
        self.columns = {
            "state": torch.zeros(capacity, STATE),
            "command": torch.zeros(capacity, JOINTS),
            "next_state": torch.zeros(capacity, STATE),
        }

    def append(self, **rows):
        count = len(rows["state"])
        if self.cursor + count > self.capacity:
            self.cursor = 0
        for name, values in rows.items():
            self.columns[name][self.cursor : self.cursor + count] = values
        self.cursor += count
        self.size = max(self.size, self.cursor)

    def sample(self, count: int, gen: torch.Generator):
        rows = torch.randint(0, self.size, (count,), generator=gen)
        return {name: column[rows] for name, column in self.columns.items()}

    def latest(self, count: int):
        first = max(0, self.cursor - count)
        return {name: column[first : self.cursor] for name, column in self.columns.items()}  # sick here
        return {name: column[first : self.cursor].clone() for name, column in self.columns.items()}  # well


class DynamicsModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(
                nn.Linear(STATE + JOINTS, HIDDEN),
                nn.SiLU(),
                nn.Linear(HIDDEN, HIDDEN),
                nn.SiLU(),
                nn.Linear(HIDDEN, STATE),
            )
            for _ in range(ENSEMBLE)
        )

    def forward(self, state, command):
        inputs = torch.cat([state, command], dim=1)
        return torch.stack([member(inputs) for member in self.members])


def explore(arm: Arm, memory: Memory, steps: int, count: int):
    command = torch.zeros(count, JOINTS)
    for _ in range(steps):
        command = 0.8 * command + 0.6 * torch.randn(count, JOINTS, generator=arm.gen)
        state = arm.state()
        memory.append(state=state, command=command, next_state=arm.advance(command))


def train_steps(model, optimizer, memory, gen):
    total = torch.zeros(())
    for _ in range(STEPS_PER_ROUND):
        batch = memory.sample(BATCH, gen)
        change = (batch["next_state"] - batch["state"]) * 20.0
        predicted = model(batch["state"], batch["command"])
        loss = F.smooth_l1_loss(predicted, change.expand_as(predicted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    return total.item() / STEPS_PER_ROUND


def write_checkpoint(path: Path, model, optimizer, memory, done: int):
    content = {
        "round": done,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "latest": memory.latest(RECENT),  # here
    }
    partial = path.with_suffix(".tmp")
    torch.save(content, partial)  # here
    partial.replace(path)


def main():
    torch.manual_seed(1)
    gen = torch.Generator().manual_seed(2)
    memory = Memory(MEMORY)
    explore(Arm(2_000, gen), memory, WARM_START // 2_000, 2_000)
    arm = Arm(ARMS, gen)
    model = DynamicsModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "dynamics.pt"
        for done in range(1, ROUNDS + 1):
            explore(arm, memory, 8, ARMS)
            loss = train_steps(model, optimizer, memory, gen)
            write_checkpoint(path, model, optimizer, memory, done)  # here
            if done % 10 == 0:
                spent = time.perf_counter() - start
                print(f"round {done:3d}  loss {loss:.5f}  memory {memory.size}  {spent:.1f} s", flush=True)


if __name__ == "__main__":
    main()
