# /// clinic
# stratum = "decoys"
# resembles = ["PD15"]
# domain = "rl"
# allow = ["PD05", "PD10"]
# sizes = {STATES = [6, 12], WIDTH = [100, 160]}
# ///
"""A crane learns to set down loads, from a bounded memory of what it has done."""

import random
import time
from collections import deque

import torch
from torch import nn

STATES = 8
WIDTH = 128
SECONDS = 5.0
BATCH = 64


def main():
    torch.manual_seed(12)
    random.seed(12)
    worth = nn.Sequential(nn.Linear(STATES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.SGD(worth.parameters(), lr=0.01)
    memory, returns, state = deque(maxlen=5000), [], torch.randn(STATES)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        with torch.no_grad():
            move = int(worth(state).argmax())
        after = 0.9 * state + 0.3 * torch.randn(STATES)
        memory.append((state, move, -float(after.square().sum()), after))
        state = after
        if len(memory) < BATCH:
            continue
        if steps == 20:
            began = time.perf_counter()
        seen = random.sample(memory, BATCH)
        states, results = torch.stack([one[0] for one in seen]), torch.tensor([one[2] for one in seen])
        moves = torch.tensor([one[1] for one in seen])
        loss = nn.functional.mse_loss(worth(states).gather(1, moves[:, None])[:, 0], results)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        returns.append(results.mean().item())
        steps += 1
    print(f"return {sum(returns[-100:]) / 100:.4f}")
    print(f"{(steps - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
