# /// clinic
# stratum = "decoys"
# resembles = ["PD16"]
# domain = "tabular"
# allow = ["PD05", "PD09"]
# sizes = {TRACES = [60, 90], WIDTH = [380, 460]}
# ///
"""Veins of opal from what lies around them. A profiler goes along, and records two of every four hundred steps."""

import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

TRACES = 75
WIDTH = 420
BATCH = 256
STEPS = 1400


def main():
    torch.manual_seed(33)
    rocks = torch.randn(20_000, TRACES)
    opal = (rocks[:, :5].sum(1) > 1).long()
    middle = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net = nn.Sequential(nn.Linear(TRACES, WIDTH), nn.ReLU(), *middle, nn.Linear(WIDTH, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    slowest = []

    def note(found):
        slowest.append(max(found.key_averages(), key=lambda one: one.self_cpu_time_total).key)

    plan = schedule(wait=397, warmup=1, active=2)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=note) as profiler:
        for step in range(STEPS):
            if step == 50:
                began = time.perf_counter()
            rows = torch.randint(0, len(rocks), (BATCH,))
            loss = nn.functional.cross_entropy(net(rocks[rows]), opal[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
        took = time.perf_counter() - began
    print(f"loss {loss.item():.4f}, slowest: {', '.join(slowest)}")
    print(f"{(STEPS - 50) * BATCH / took:.1f} samples/s")


if __name__ == "__main__":
    main()
