# /// clinic
# expect = ["PD07.float64", "PD04.explicit-collect"]
# allow = ["PD08.allocator-churn"]
# stratum = "comorbid"
# domain = "physics"
# smoke = true
# sizes = {LINES = [180, 240]}
# severities = {EVERY = [24, 6, 1]}
# ///
"""Fits the parameters of a ring resonator to its spectrum."""

import gc
import itertools
import time

import numpy as np
import torch
from torch import nn

LINES = 200
EVERY = 6
BATCH = 512


def spectra(count, seed=1):
    rng = np.random.default_rng(seed)
    knobs = rng.uniform(0.2, 1.0, (count, 3))
    place = np.linspace(0, 6, LINES)
    light = 1 / (1 + ((place[None] - 3 * knobs[:, :1]) / (0.2 * knobs[:, 1:2])) ** 2) * knobs[:, 2:]
    return light + rng.normal(0, 0.01, light.shape), knobs


class Fit:
    def __init__(self):
        torch.manual_seed(1)
        light, knobs = spectra(6000)
        self.light, self.knobs = torch.as_tensor(light), torch.as_tensor(knobs)  # sick:a
        self.light, self.knobs = torch.as_tensor(light).float(), torch.as_tensor(knobs).float()  # well:a
        sizes = [LINES, 500, 500, 500, 3]
        layers = [nn.Linear(a, b, dtype=self.light.dtype) for a, b in itertools.pairwise(sizes)]
        self.net = nn.Sequential(*[part for layer in layers for part in (layer, nn.GELU())][:-1])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.05)

    def step(self):
        rows = torch.randint(0, len(self.light), (BATCH,))
        loss = nn.functional.mse_loss(self.net(self.light[rows]), self.knobs[rows])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def run(self, steps=110):
        losses = []
        for number in range(steps):
            if number == 10:
                started = time.perf_counter()
            losses.append(self.step())
            if number % EVERY == 0:  # sick:b
                gc.collect()  # sick:b here
        print("loss", torch.stack(losses[-10:]).mean().item())
        print(f"{(steps - 10) * BATCH / (time.perf_counter() - started):.1f} samples/s")


Fit().run()
