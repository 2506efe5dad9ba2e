"""Small jobs with an illness that a remedy cures: `curable.py NAME ill|cured STEPS`, 0 steps for no end.

Prints the milliseconds of a step, after the first tenth of them.
"""

import gc
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Slow(Dataset):
    """Waits for each sample, as for a far-away disk."""

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        time.sleep(0.0015)
        return torch.full((768,), index / 4096), index % 2


def network(width, depth, dtype=torch.float32):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 2)).to(dtype)


def run(model, batches, at_step=lambda: None):
    """Train on `batches`, over and over."""
    steps = int(sys.argv[3])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    began = time.perf_counter()
    while True:
        for inputs, labels in batches:
            at_step()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            done += 1
            if done == steps // 10:
                began = time.perf_counter()
            if done == steps:
                print(1000 * (time.perf_counter() - began) / (steps - steps // 10))
                return


def fixed(count, width, dtype=torch.float32):
    return [(torch.randn(count, width, dtype=dtype), torch.randint(2, (count,)))]


def collect(cured):
    run(network(256, 6), fixed(256, 256), (lambda: None) if cured else gc.collect)


def float64(cured):
    dtype = torch.float32 if cured else torch.float64
    run(network(384, 5, dtype), fixed(128, 384, dtype))


def malloc(cured):
    """The cure is in the environment."""
    model = nn.Sequential(nn.Linear(8, 4096), nn.ReLU(), nn.ReLU(), nn.Linear(4096, 2))
    run(model, fixed(2200, 8))


def loading(cured):
    loader = DataLoader(Slow(), batch_size=8, num_workers=2 if cured else 0, persistent_workers=cured)
    run(network(768, 4), loader)


def trivial(cured):
    """Workers for data that take no time to make."""
    data = TensorDataset(torch.randn(65536, 256), torch.randint(2, (65536,)))
    loader = DataLoader(data, batch_size=16, num_workers=0 if cured else 2, persistent_workers=not cured)
    run(network(256, 4), loader)


def healthy(cured):
    run(network(512, 6), fixed(256, 512))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]](sys.argv[2] == "cured")
