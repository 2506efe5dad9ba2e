# /// clinic
# expect = ["PD07.float64", "PD10", "PD04.explicit-collect"]
# allow = ["PD08.allocator-churn"]
# stratum = "comorbid"
# domain = "series"
# sizes = {STATIONS = [20, 30]}
# severities = {WIDTH = [700, 400, 200]}
# ///
"""How fast do glaciers melt? Weather of a season in, melt water of each week out."""

import gc
import time

import numpy as np
import torch
from torch import nn

STATIONS = 24
WIDTH = 400
WEEKS = 20
BATCH = 64
SECONDS = 5.0


def seasons(count):
    generator = np.random.default_rng(11)
    weather = generator.normal(size=(count, WEEKS * STATIONS)).cumsum(1) / 10
    return weather, weather.reshape(count, WEEKS, STATIONS).mean(2)


def weekly(melt, wanted):
    return (melt - wanted).abs().mean(0).tolist()  # well:b
    errors = [0.0] * WEEKS  # sick:b
    for season in range(len(melt)):  # sick:b here
        for week in range(0, WEEKS, 4):  # sick:b here
            errors[week] += abs(melt[season, week] - wanted[season, week]).item() / len(melt)  # sick:b here
    return errors  # sick:b


def main():
    torch.manual_seed(11)
    weather, melt = (torch.from_numpy(one) for one in seasons(1500))  # sick:a
    weather, melt = (torch.from_numpy(one).float() for one in seasons(1500))  # well:a
    model = nn.Sequential(nn.Linear(WEEKS * STATIONS, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    model.append(nn.Linear(WIDTH, WEEKS))
    model.to(weather.dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    steps, began = 0, None
    while began is None or time.perf_counter() - began < SECONDS:
        if steps == 10:
            began = time.perf_counter()
        rows = torch.randint(0, len(melt), (BATCH,))
        guess = model(weather[rows])
        loss = nn.functional.mse_loss(guess, melt[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors = weekly(guess.detach(), melt[rows])
        if steps % 5 == 0:  # sick:c
            gc.collect()  # sick:c here
        steps += 1
    print(f"loss {loss.item():.4f}, first week {errors[0]:.3f}")
    print(f"{(steps - 10) * BATCH / (time.perf_counter() - began):.1f} seasons/s")


if __name__ == "__main__":
    main()
