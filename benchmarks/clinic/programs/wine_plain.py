# /// clinic
# stratum = "decoys"
# domain = "tabular"
# smoke = true
# sizes = {COLUMNS = [28, 40], WIDTH = [600, 700]}
# ///
"""Grades wines from their chemistry."""

import argparse
import time

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

COLUMNS = 32
WIDTH = 640

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--num-workers", type=int, default=0)


class Grader(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(COLUMNS, WIDTH)
        self.middle = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])
        self.grade = nn.Linear(WIDTH, 7)

    def forward(self, chemistry):
        hidden = torch.relu(self.first(chemistry))
        for layer in self.middle:
            hidden = torch.relu(layer(hidden))
        return self.grade(hidden)


def main(options):
    torch.manual_seed(0)
    generator = numpy.random.default_rng(0)
    chemistry = generator.normal(size=(40 * options.batch, COLUMNS)).astype(numpy.float32)
    grades = generator.integers(0, 7, len(chemistry))
    wines = TensorDataset(torch.from_numpy(chemistry), torch.from_numpy(grades))
    loader = DataLoader(wines, options.batch, shuffle=True, num_workers=options.num_workers)
    model = Grader()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(options.epochs):
        if epoch == 1:
            began = time.perf_counter()
        for inputs, wanted in loader:
            loss = nn.functional.cross_entropy(model(inputs), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")
    print(f"{(options.epochs - 1) * len(wines) / (time.perf_counter() - began):.1f} wines/s")


if __name__ == "__main__":
    main(parser.parse_args())
