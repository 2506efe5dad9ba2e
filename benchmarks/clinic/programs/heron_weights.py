# /// clinic
# expect = ["PD10.dear-operator"]
# stratum = "twins"
# domain = "tabular"
# sizes = {WIDTH = [224, 288]}
# ///
"""A network kept smooth: the largest singular value of each of its matrices is part of the loss."""

import time

import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 256
STEPS = 700


def network():
    return nn.Sequential(
        nn.Linear(64, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH),
        nn.ReLU(),
        nn.Linear(WIDTH, 5),
    )


class Smoothness:
    def __init__(self, model):
        self.weights = [p for p in model.parameters() if p.ndim == 2]
        self.sides = [F.normalize(torch.randn(p.shape[1]), dim=0) for p in self.weights]  # well

    def largest(self, place, weight):
        return torch.linalg.matrix_norm(weight, ord=2)  # sick here
        with torch.no_grad():  # well
            left = F.normalize(weight @ self.sides[place], dim=0)  # well
            right = self.sides[place] = F.normalize(weight.T @ left, dim=0)  # well
        return left @ weight @ right  # well

    def __call__(self):
        return sum(self.largest(place, weight) for place, weight in enumerate(self.weights))


def main():
    torch.manual_seed(4)
    model = network()
    smoothness = Smoothness(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    truth = torch.randn(64, 5)
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        x = torch.randn(512, 64)
        loss = F.cross_entropy(model(x), (x @ truth).argmax(1)) + 1e-3 * smoothness()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}")
    print(f"{512 * (STEPS - 20) / (time.perf_counter() - began):.1f} rows/s")


if __name__ == "__main__":
    main()
