# /// clinic
# expect = ["PD10.grown-by-cat", "PD10.rebuilt-by-cat", "PD15.growing-tensor"]
# stratum = "twins"
# domain = "routes of sledges"
# ///
"""Prototype: how much of an earlier route does a sledge driver forget, with and without remembering old trips?

A sledge sends one reading of its sensors per trip.  The routes come one after the other, each seen through its own mixing of
the sensors, and the network must name the load (one of twelve) on all routes so far.  Remembered trips are mixed into each
batch.  The result is a table of accuracies after each route and the mean forgetting.
"""

import time

import torch
from torch import nn
from torch.nn import functional as F

SEED = 5
SENSORS = 512
LOADS = 12
ROUTES = 5
STEPS_PER_ROUTE = 135
FRESH, REMEMBERED = 64, 64
TEST_TRIPS = 400
HIDDEN = 1024

REMEMBER = True  # ablation: learn from fresh trips only
SOFTEN = 0.05  # ablation: label smoothing, 0 turns it off


class Route:
    """One route: the loads' signatures are the same everywhere, the way they reach the sensors is not."""

    def __init__(self, signatures, generator):
        mix = torch.randn(signatures.shape[1], SENSORS, generator=generator) / signatures.shape[1] ** 0.5
        self.signatures, self.mix = signatures, mix
        self.bumps = 0.4 * torch.randn(SENSORS, generator=generator)

    def trips(self, n):
        y = torch.randint(LOADS, (n,))
        inner = self.signatures[y] + 0.9 * torch.randn(n, self.signatures.shape[1])
        return torch.tanh(inner @ self.mix + self.bumps), y


class Logbook:
    """All trips so far, drawn from evenly."""

    def __init__(self, room):
        self.room = room
        self.filled = 0
        self.x = torch.empty(room, SENSORS)  # well
        self.y = torch.empty(room, dtype=torch.long)  # well
        self.x = torch.empty(0, SENSORS)  # sick
        self.y = torch.empty(0, dtype=torch.long)  # sick

    def note(self, x, y):
        end = self.filled + len(x)
        if end > self.room:
            return
        self.x[self.filled : end] = x  # well
        self.y[self.filled : end] = y  # well
        self.x = torch.cat([self.x, x])  # sick here
        self.y = torch.cat([self.y, y])  # sick
        self.filled = end

    def recall(self, n):
        which = torch.randint(self.filled, (n,))
        return self.x[which], self.y[which]


class Driver(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(SENSORS, HIDDEN)
        self.middle = nn.Linear(HIDDEN, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.leave = nn.Linear(HIDDEN, LOADS)

    def forward(self, x):
        x = F.relu(self.enter(x))
        x = self.norm(x + F.relu(self.middle(x)))
        return self.leave(x)


@torch.no_grad()
def accuracy(net, x, y):
    net.eval()
    right = (net(x).argmax(1) == y).float().mean().item()
    net.train()
    return right


def forgetting(table):
    """Mean over the routes of the best accuracy ever held on it minus the accuracy at the end."""
    last = table[-1]
    drops = []
    for route in range(len(last) - 1):
        best = max(row[route] for row in table if len(row) > route)
        drops.append(best - last[route])
    return sum(drops) / len(drops)


def travel(net, optimizer, route, logbook):
    """Learn one route; returns the number of samples that went through the network."""
    seen = 0
    for _ in range(STEPS_PER_ROUTE):
        x, y = route.trips(FRESH)
        fresh_x, fresh_y = x, y
        if REMEMBER and logbook.filled:
            old_x, old_y = logbook.recall(REMEMBERED)
            x, y = torch.cat([x, old_x]), torch.cat([y, old_y])
        loss = F.cross_entropy(net(x), y, label_smoothing=SOFTEN)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if REMEMBER:
            logbook.note(fresh_x, fresh_y)
        seen += len(x)
    return seen


def main():
    torch.manual_seed(SEED)
    g = torch.Generator().manual_seed(SEED)
    signatures = torch.randn(LOADS, 24, generator=g)
    routes = [Route(signatures, g) for _ in range(ROUTES)]
    exams = [route.trips(TEST_TRIPS) for route in routes]
    net = Driver()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    logbook = Logbook(ROUTES * STEPS_PER_ROUTE * FRESH)
    table = []
    seen = 0
    began = time.perf_counter()
    for number, route in enumerate(routes):
        seen += travel(net, optimizer, route, logbook)
        table.append([accuracy(net, *exams[r]) for r in range(number + 1)])
    took = time.perf_counter() - began
    for number, row in enumerate(table):
        print(f"after route {number}: " + " ".join(f"{a:.2f}" for a in row))
    print(f"trips in the logbook: {logbook.filled}, mean forgetting {forgetting(table):.3f}")
    print(f"{seen / took:.1f} samples/s")


if __name__ == "__main__":
    main()
