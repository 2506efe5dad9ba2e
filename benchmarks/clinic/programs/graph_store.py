# /// clinic
# expect = ["PD04.automatic-collections"]
# stratum = "contra"
# domain = "graphs"
# sizes = {WIDTH = [200, 260]}
# severities = {NODES = [40000, 90000, 160000]}
# ///
"""Learns node embeddings by random walks over a graph that is kept in Python objects."""

import gc
import random
import time

import torch
from torch import nn

NODES = 90000
WIDTH = 230
BATCH = 192
STEPS = 240


class Node:
    def __init__(self, name):
        self.name = name
        self.neighbours = []
        self.facts = {"degree": 0, "label": [name % 7]}


def graph(dice):
    nodes = [Node(name) for name in range(NODES)]
    for node in nodes:
        for other in dice.sample(range(NODES), 3):
            node.neighbours.append((nodes[other], dice.random()))
            node.facts["degree"] += 1
    return nodes


def walk(node, length, dice):
    path = [node]
    for _ in range(length):
        path.append(dice.choice(path[-1].neighbours)[0])
    return path


def main():
    dice = random.Random(5)
    torch.manual_seed(5)
    nodes = graph(dice)
    gc.collect()
    gc.freeze()  # well
    table = nn.EmbeddingBag(4096, WIDTH, mode="mean")
    net = nn.Sequential(
        nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, 7)
    )
    optimizer = torch.optim.SGD([*table.parameters(), *net.parameters()], lr=0.1)
    history = []
    for step in range(STEPS):
        if step == 20:
            began = time.perf_counter()
        walks = [walk(dice.choice(nodes), 6, dice) for _ in range(BATCH)]
        steps = torch.tensor([[node.name % 4096 for node in path] for path in walks])
        labels = torch.tensor([path[0].facts["label"][0] for path in walks])
        loss = nn.functional.cross_entropy(net(table(steps)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.extend({"step": step, "path": [node.name for node in path]} for path in walks)
        if step % 80 == 0:
            print(f"{step}: loss {loss.item():.3f}, {len(history)} walks")
    print(f"{(STEPS - 20) * BATCH / (time.perf_counter() - began):.1f} walks/s")


main()
