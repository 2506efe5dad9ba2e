# /// clinic
# expect = ["PD12.busy-helper"]
# stratum = "twins"
# domain = "wind turbines"
# sizes = {HIDDEN = [380, 420], BATCH = [124, 132]}
# ///
"""Trains a forecaster of turbine power, while another process keeps the history of its losses."""

import multiprocessing as mp
import queue
import time

import torch
from torch import nn

HIDDEN = 400
BATCH = 128
WINDOW = 48
SENSORS = 10
STEPS = 900
WARMUP = 10


def keep_history(losses, done):
    """Averages over the last losses that came in, until training is over."""
    recent = []
    while not done.is_set():
        try:
            recent.append(losses.get_nowait())  # sick
            recent.append(losses.get(timeout=0.5))  # well
        except queue.Empty:
            continue
        recent = recent[-100:]
    if recent:
        print(f"mean of the last losses {sum(recent) / len(recent):.4f}", flush=True)


def windows(turbines=400, hours=600):
    """Sensors over time, driven by a wind that wanders; power follows the cube of it."""
    torch.manual_seed(3)
    wind = torch.randn(turbines, hours).cumsum(1) * 0.05 + 1.0
    noise = torch.randn(turbines, hours, SENSORS) * 0.2
    return wind.unsqueeze(2) * torch.rand(SENSORS) + noise, wind.clamp(0, 2).pow(3)


def main():
    sensors, power = windows()
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(WINDOW * SENSORS, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, 1),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, done = mp.Queue(), mp.Event()
    history = mp.Process(target=keep_history, args=(losses, done))
    history.start()
    for step in range(STEPS):
        if step == WARMUP:
            start = time.perf_counter()
        turbine = torch.randint(0, len(sensors), (BATCH,))
        hour = torch.randint(0, sensors.shape[1] - WINDOW - 1, (BATCH, 1)) + torch.arange(WINDOW)
        x, y = sensors[turbine[:, None], hour], power[turbine, hour[:, -1] + 1]
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            losses.put(loss.item())
    elapsed = time.perf_counter() - start
    done.set()
    history.join()
    print(f"{(STEPS - WARMUP) / elapsed:.2f} steps/s")


if __name__ == "__main__":
    main()
