"""Small jobs with an illness that a remedy cures: `curable.py NAME ill|cured [turns]`, else without an end.

With `turns` it takes steps only when told to: a line of standard input says how many to let pass and how many to time,
and is answered with the milliseconds of one of the latter.
"""

import gc
import itertools
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


class Uneven(Slow):
    """Finds nearly all samples at hand, and one in 160 on a far-away disk."""

    def __getitem__(self, index):
        if index % 160 == 80:
            time.sleep(0.06)
        return torch.full((768,), index / 4096), index % 2


def network(width, depth, dtype=torch.float32):
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 2)).to(dtype)


def run(model, batches, at_step=lambda: None, optimizer=torch.optim.SGD, **options):
    """Train on `batches`, over and over."""
    stepping = steps(model, batches, at_step, optimizer(model.parameters(), lr=0.01, **options))
    if sys.argv[3:] == ["turns"]:
        take_turns(stepping)
    else:
        for _ in stepping:
            pass


def steps(model, batches, at_step, optimizer):
    """Comes back after each step."""
    while True:
        for inputs, labels in batches:
            at_step()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            yield


def take_turns(stepping):
    """As many steps as each line asks for."""
    for line in sys.stdin:
        settle, count = map(int, line.split())
        for _ in range(settle):
            next(stepping)
        began = time.perf_counter()
        for _ in range(count):
            next(stepping)
        print(1000 * (time.perf_counter() - began) / count, flush=True)


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


def uneven(cured):
    """One batch in 20 is slow, and two workers keep up on average."""
    ahead = 8 if cured else 2
    loader = DataLoader(Uneven(), batch_size=8, num_workers=2, persistent_workers=True, prefetch_factor=ahead)
    run(network(768, 6), loader)


def trivial(cured):
    """Workers for data that take no time to make."""
    data = TensorDataset(torch.randn(65536, 256), torch.randint(2, (65536,)))
    loader = DataLoader(data, batch_size=16, num_workers=0 if cured else 2, persistent_workers=not cured)
    run(network(256, 4), loader)


def anomaly(cured):
    torch.autograd.set_detect_anomaly(not cured)
    run(network(256, 6), fixed(256, 256))


def onednn(cured):
    torch.backends.mkldnn.set_flags(cured)
    layers = [nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()] * 2
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
    run(model, [(torch.randn(16, 16, 24, 24), torch.randint(2, (16,)))])


def update(cured):
    run(network(128, 40), fixed(8, 128), optimizer=torch.optim.Adam, fused=cured, foreach=False)


def containers(cured):
    """Many small objects that live on, walked by automatic collections."""
    kept = [{"number": number} for number in range(200_000)]
    if cured:
        gc.set_threshold(50_000, 50, 100)

    def churn():
        kept[: len(kept) // 20] = [{"number": number} for number in range(len(kept) // 20)]

    run(network(128, 2), fixed(64, 128), churn)


def both(cured):
    """float64, and collections besides."""
    dtype = torch.float32 if cured else torch.float64
    steps = itertools.count()

    def collect_often():
        if not cured and next(steps) % 4 == 0:
            gc.collect()

    run(network(384, 5, dtype), fixed(128, 384, dtype), collect_often)


def compiled(cured):
    """A layer of many small operators."""
    layers = [nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.LocalResponseNorm(5), nn.AdaptiveAvgPool2d(4)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 2))
    run(torch.compile(model) if cured else model, [(torch.randn(8, 8, 32, 32), torch.randint(2, (8,)))])


def healthy(cured):
    run(network(512, 6), fixed(256, 512))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]](sys.argv[2] == "cured")
