# /// clinic
# expect = ["PD15.growing-file"]
# stratum = "twins"
# domain = "time-series"
# beyond = true
# sizes = {PROBES = [40, 60], WIDTH = [200, 300]}
# severities = {EVERY = [20, 10, 5]}
# ///
"""Heat in a kiln, from its probes. What was predicted is kept for a plot of the whole training."""

import json
import time

import torch
from torch import nn

PROBES = 48
WIDTH = 256
STEPS = 1600
EVERY = 10
BATCH = 128


def main():
    torch.manual_seed(2)
    heat = torch.randn(8000, PROBES)
    net = nn.Sequential(nn.Linear(PROBES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    history, newest = [], []
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(heat), (BATCH,))
        predicted = net(heat[rows])
        loss = (predicted - heat[rows].mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        noted = {"step": step, "loss": loss.item(), "predicted": predicted.detach().flatten()[:24].tolist()}
        history.append(noted)  # sick
        newest.append(noted)  # well
        if step % EVERY == 0:
            with open("kiln.json", "w") as file:  # sick
                json.dump(history, file)  # sick here
            with open("kiln.jsonl", "a") as file:  # well
                file.writelines(json.dumps(one) + "\n" for one in newest)  # well
            newest = []  # well
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
