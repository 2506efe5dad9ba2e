# /// clinic
# expect = ["PD15.growing-container"]
# stratum = "twins"
# domain = "tabular"
# beyond = true
# sizes = {VALVES = [30, 50], WIDTH = [250, 350]}
# severities = {STEPS = [1000, 1500, 2500]}
# ///
"""Wear of valves from their strokes. A protocol of the training lies on the disk at all times."""

import json
import time

import torch
from torch import nn

VALVES = 40
WIDTH = 300
STEPS = 1500
BATCH = 128


def main():
    torch.manual_seed(15)
    strokes = torch.randn(10000, VALVES)
    wear = strokes[:, :6].relu().sum(1, keepdim=True)
    net = nn.Sequential(nn.Linear(VALVES, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    protocol = {"loss": [], "step": []}  # sick
    lines = open("protocol.jsonl", "w")  # well
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        rows = torch.randint(0, len(wear), (BATCH,))
        loss = nn.functional.mse_loss(net(strokes[rows]), wear[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        protocol["loss"].append(loss.item())  # sick here
        protocol["step"].append(step)  # sick here
        with open("protocol.json", "w") as file:  # sick
            json.dump(protocol, file)  # sick here
        lines.write(json.dumps({"loss": loss.item(), "step": step}) + "\n")  # well
    print(f"loss {loss.item():.4f}")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} samples/s")


if __name__ == "__main__":
    main()
